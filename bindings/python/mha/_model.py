"""Models from the checkpoints that people have."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from mha import _embed, _generate, _inside, _language, _mha, _page, _speech
from mha._data import Data, Score, data_of, is_test
from mha._generate import Generated
from mha._heads import Attention, Heads
from mha._inputs import find_tokenizer, patch_names, read_images, read_picture, starts_of, token_rows, words_of
from mha._language import Filled, TextScore
from mha._lock import Lock
from mha._page import Page
from mha._parameters import Parameters
from mha._speech import Transcript
from mha._tokenizer import Tokenizer

_LONGEST = 100000  # bytes of a text on a page


class Class(NamedTuple):
    """A class that a model predicts."""

    number: int
    name: str  #: as the model's config.json names it; its number unless it does
    probability: float


class Model:
    """A transformer from a folder as the transformers library saves it, a Vision Transformer's safetensors file, or a checkpoint
    of llama2.c; without PyTorch.

    Args:
        path: the folder or file.
        tokenizer: a :class:`Tokenizer` or its path; unless given, the one beside the model is opened when it is needed.
        dtype: "float32", or "bfloat16", in which factors of products are rounded.
        heads: heads per block, for files that do not say.

    Text goes in as a str, as a list of ids, or as a list of either; the last is a batch. Images go in as arrays
    (channels,rows,columns) or (rows,columns) of bytes or of floats from 0 to 1, as batches of these, or as paths of PNG files.
    One call uses a model at a time; others wait.

    >>> import mha
    >>> model = mha.train("synthetic:120", epochs=1, width=16, depth=1, heads=2, batch=20).model
    >>> images, labels = mha.Data("synthetic:60").examples("test")
    >>> model.logits(images).shape, len(model.heads("synthetic:60"))
    ((10, 10), 2)
    """

    _tokenizer: Tokenizer | None = None
    _target_tokenizer: Tokenizer | None = None
    _options: dict[str, Any]  # of opening it, beside the path

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        dtype: str = "float32",
        heads: int = 0,
    ):
        if dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype: {dtype!r} must be 'float32' or 'bfloat16'")
        path = os.fspath(path)
        handle = _mha.model_open(path, heads, dtype == "bfloat16")
        self._take(handle, _mha.model_path(handle))  # a name of the hub is the folder that was found
        self._options = {"dtype": dtype, "heads": heads}
        self._tokenizer = tokenizer if tokenizer is None or isinstance(tokenizer, Tokenizer) else Tokenizer(tokenizer)

    @classmethod
    def _made(cls, handle: Any) -> Model:
        """A model that did not come from a file."""
        self = cls.__new__(cls)
        self._take(handle, None)
        return self

    def _take(self, handle: Any, path: str | None) -> None:
        self._handle, self._path = handle, path
        self._lock = Lock()
        #: family, parameters, blocks, width, heads, classes, vocabulary, positions, ...
        self.info: dict[str, Any] = _mha.model_about(handle)
        self._sees = not self.info["vocabulary"] and not self.info["frames"]  # images
        #: one dict for each attention: block, heads, kv_heads, width, decoder, cross
        self.attentions: list[dict[str, Any]] = _mha.model_attentions(handle)
        self._off = np.zeros(self.info["heads"], np.bool_)  # heads that were switched off

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        """A model of its own: what is written to its parameters, and heads that are switched off, do not reach this one."""
        made = self.prune(()) if self.info["file_bytes"] else Model(self._path or "", **self._options)
        made._path, made._tokenizer, made._target_tokenizer = self._path, self._tokenizer, self._target_tokenizer
        if self._off.any():
            _mha.model_switch_off(made._handle, self._off)
            made._off = self._off.copy()
        memo[id(self)] = made
        return made

    def __reduce__(self) -> Any:
        raise TypeError("a Model cannot be pickled; save() writes it to a file, and Model(path) opens that")

    def __repr__(self) -> str:
        info = self.info
        return f"<mha.Model {info['family']}, {info['blocks']} blocks, {info['heads']} heads, {info['parameters']} parameters>"

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the model, or the one that was given."""
        if self._tokenizer is None:
            if self._path is None:
                raise ValueError("tokenizer: this model has none")
            self._tokenizer = Tokenizer(find_tokenizer(self._path))
        return self._tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the decoder: another one in models with two vocabularies, such as Marian's."""
        if self._target_tokenizer is None:
            if self._tokenizer is not None or self._path is None or not self.info["encoder_blocks"]:
                self._target_tokenizer = self.tokenizer
            else:
                self._target_tokenizer = Tokenizer(find_tokenizer(self._path), target=True)
        return self._target_tokenizer

    @property
    def description(self) -> dict[str, Any]:
        """All that defines the model: what goes in, the blocks, what comes out."""
        return json.loads(_mha.model_describe(self._handle))

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, as the model's config.json has them; numbers unless it does."""
        names: dict[str, Any] = {}
        if self._path is not None and os.path.isdir(self._path):
            with open(os.path.join(self._path, "config.json"), encoding="utf-8") as file:
                names = json.load(file).get("id2label") or {}
        return [str(names.get(str(n), n)) for n in range(self.info["classes"])]

    # ---- running

    def logits(self, inputs: Any, decoder: Any = None) -> np.ndarray | list[np.ndarray]:
        """The logits of a text: (T,classes), or (classes) for a model that gives one answer; of a batch, a list of these. Of an
        image (classes), of a batch (B,classes).

        Args:
            inputs: a text, an image, or a batch.
            decoder: for a model with two stacks: what its decoder reads, likewise.
        """
        if self._sees:
            images, single = read_images(self, inputs)
            logits = np.empty((len(images), self.info["classes"]), np.float32)
            self._run(None, images=images, logits=logits)
            return logits[0] if single else logits
        rows, single = self._rows(inputs)
        more = self._decoder_rows(decoder)
        named, last = _language.inputs_of(rows, more)
        pooled = self.info["pooled"]
        logits = np.empty((len(rows), *(() if pooled else (last.max(),)), self.info["classes"]), np.float32)
        self._run(None, logits=logits, **named)
        found = [row if pooled else row[:n] for row, n in zip(logits, last)]
        return found[0] if single else found

    def hidden(self, inputs: Any, decoder: Any = None) -> np.ndarray | list[np.ndarray]:
        """The rows before each block and after the last one, (L+1,T,M); of a batch, a list of these.

        Of a model with two stacks these are the decoder's if ``decoder`` is given, and the encoder's unless it is.
        """
        info = self.info
        if self._sees:
            images, single = read_images(self, inputs)
            hidden = np.empty((info["blocks"] + 1, len(images), info["tokens"], info["width"]), np.float32)
            self._run(None, images=images, hidden=hidden)
            return hidden[:, 0] if single else [hidden[:, b] for b in range(len(images))]
        rows, single = self._rows(inputs)
        encoder = info["encoder_blocks"] and decoder is None
        more = [np.zeros(1, np.int32)] * len(rows) if encoder else self._decoder_rows(decoder)
        named, last = _language.inputs_of(rows, more)
        if encoder:
            last = named["lengths"]
        stack = "encoder_" if encoder else ""
        hidden = np.empty((info[stack + "blocks"] + 1, len(rows), last.max(), info[stack + "width"]), np.float32)
        self._run(None, **{stack + "hidden": hidden}, **named)
        found = [hidden[:, b, :n] for b, n in enumerate(last)]
        return found[0] if single else found

    def embed(
        self, texts: Any, *, pool: str | None = None, normalize: bool | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """Embeddings: (M), or (B,M) of a batch. The model's folder is followed as sentence-transformers does, if it has a modules.json:
        pooling, Dense, normalisation, the longest texts, lower case and prompts. Without one, the mean of the last rows of all tokens,
        of length 1. Of a model with two stacks, the encoder's rows.

        Args:
            texts: a text or a list of them, ids or lists of ids, or images.
            pool: "mean", "first", "last", "max", "root" or "weighted", or several with "+" between them, in place of the folder's.
            normalize: False: vectors keep their length; True: all have length 1; unless given, as the folder says.
            prompt: the name of one of the folder's prompts, for texts, in place of the default one.
        """
        return _embed.embed(self, texts, pool, normalize, prompt)

    def attention(self, inputs: Any, target: Any = None) -> Attention:
        """The weights of all heads for one text, image or sound.

        Args:
            target: of a model with two stacks, what its decoder reads; unless given, what it generates.
        """
        named, tokens, words, sizes = self._one(inputs, target)
        maps = [np.empty((1, a["heads"], *self._map_size(a, *sizes)), np.float32) for a in self.attentions]
        self._run(maps, **named)
        return Attention(tokens, [one[0] for one in maps], words, self.attentions)

    def inside(self, inputs: Any, attention: int = 0, target: Any = None) -> dict[str, np.ndarray]:
        """What lies inside a block for one text, image or sound, by name: ``x`` (T,M), the rows that come in; ``read`` (T,M), what attention
        reads; ``q`` (H,T,D), ``k`` and ``v`` (G,S,D); ``scores`` and ``weights`` (H,T,S); ``heads`` (H,T,D); ``attended`` (T,M), what
        attention adds; ``middle`` (T,M); ``mlp_read`` (T,M), ``hidden`` (T,F), which a mixture of experts has not, and ``mlp`` (T,M), what
        the MLP reads, has inside and adds; ``y`` (T,M), the rows that go out.

        Args:
            attention: which block: that of this one of ``attentions``. S is T, or of a cross-attention the rows of the encoder.
            target: as in :meth:`attention`.
        """
        return _inside.inside(self, inputs, attention, target)

    def _one(self, inputs: Any, target: Any) -> tuple[dict, list[str], list[str] | None, tuple[int, int]]:
        """The arrays that a run reads for one text, image or sound; its tokens and those of the decoder, and how many."""
        if self._sees:
            images, single = read_images(self, inputs)
            named, tokens, words, sizes = {"images": images}, patch_names(self.info), None, (self.info["tokens"], 0)
        elif self.info["frames"]:
            named, tokens, words = _speech.attended(self, inputs, target)
            single, sizes = True, (len(tokens), len(words))
        else:
            rows, single = self._rows(inputs)
            more = _language.targets_of(self, rows, target, 60) if self._is_pair(target) else None
            named, _ = _language.inputs_of(rows, more)
            tokens = words_of(rows[0], self._optional(lambda: self.tokenizer))
            words = None if more is None else words_of(more[0], self._optional(lambda: self.target_tokenizer))
            sizes = (len(rows[0]), 0 if more is None else len(more[0]))
        if not single:
            raise ValueError("text: must be one text or image, not a batch")
        return named, tokens, words, sizes

    # ---- heads

    def heads(
        self, inputs: Any, target: Any = None, *, window: int = 0, windows: int = 64, repeats: int = 16, seed: int = 1,
        part: str = "test", images: int = 400,
    ) -> Heads:  # fmt: skip
        """What every head attends to, over windows of a text, pairs of texts, or images.

        Args:
            inputs: a text or several; of a model with two stacks, sources. For a Vision Transformer, :class:`Data` or where they are.
            target: what the decoder reads for each source; unless given, what the model generates.
            window: tokens of a window; 0: 128, or as many as the model has positions.
            windows: at most so many, evenly spaced.
            repeats: sequences of repeated random tokens, which induction heads are found with.
            part: "train" or "test" of the data, of which ``images`` are used.
        """
        if self._sees:
            with self._lock:
                handle = _mha.image_survey_make(
                    self._handle, data_of(inputs)._handle, is_test(part), images, images, images
                )
            return Heads(handle, images=True)
        named = self._survey_text(inputs, target)
        with self._lock:
            handle = _mha.survey_make(self._handle, window=window, windows=windows, repeats=repeats, seed=seed, **named)
        return Heads(handle, images=False)

    def ablate(self, text: Any, off: Any, *, window: int = 0, windows: int = 16) -> list[Score]:
        """How well a causal model predicts a text without some heads: one :class:`Score` for each case.

        Args:
            off: bool (cases,heads), True for heads that are off, counted through all attentions.
        """
        cases = np.ascontiguousarray(off, np.bool_)
        if cases.ndim != 2 or cases.shape[1] != self.info["heads"]:
            raise ValueError(f"off: has shape {cases.shape}, must be (cases,{self.info['heads']})")
        named = self._survey_text(text, None)
        named.pop("drawn", None)
        with self._lock:
            found = _mha.text_ablate(self._handle, off=cases, window=window, windows=windows, **named)
        return [Score(*one) for one in found]

    def contributions(self, images: Any) -> np.ndarray:
        """What each part of a Vision Transformer adds to the logits: (B,heads+L+2,classes), or without B for one image. The rows are
        the embedding, the heads, the MLPs and the biases; their sum is the logits."""
        pixels, single = read_images(self, images)
        found = np.empty((len(pixels), self.info["heads"] + self.info["blocks"] + 2, self.info["classes"]), np.float32)
        with self._lock:
            _mha.model_contributions(self._handle, pixels, found)
        return found[0] if single else found

    def switch_off(self, heads: Iterable[tuple[int, int]]) -> None:
        """Switches heads off, each given as (attention, head), from 0: their output counts as zero from now on."""
        off = self._marked(heads)
        with self._lock:
            _mha.model_switch_off(self._handle, off)
            self._off |= off

    def prune(self, heads: Iterable[tuple[int, int]]) -> Model:
        """A smaller model of its own, without these heads, each given as (attention, head), from 0."""
        keep = ~self._marked(heads)
        if self.info["file_bytes"]:
            with self._lock:
                return Model._made(_mha.model_prune(self._handle, keep))
        with tempfile.TemporaryDirectory() as folder:  # the model keeps the file open
            path = os.path.join(folder, "model.safetensors")
            self._save(path, keep)
            return Model(path, tokenizer=self._optional(lambda: self.tokenizer))

    def save(self, path: str | os.PathLike[str], *, without: Iterable[tuple[int, int]] = ()) -> None:
        """Writes the model. A Vision Transformer that this library has trained becomes one safetensors file, which is replaced
        atomically. A model of the transformers library becomes a folder without another model in it, as save_pretrained
        writes it; without heads that are given as (attention, head), it becomes one file."""
        off = self._marked(without)
        self._save(os.fspath(path), ~off if off.any() else None)

    @property
    def parameters(self) -> Mapping[str, np.ndarray]:
        """The parameters by name. Those of a Vision Transformer that this library has trained are the model's memory: what is
        written to them counts from the next call on. Those that lie in other files are read-only copies."""
        return Parameters(self)

    # ---- what models are for

    def generate(self, prompts: Any, **options: Any) -> Any:
        """Continues a prompt: its text, or for a batch a list of texts; :class:`Generated` where there is no tokenizer.

        Args:
            prompts: a text or a batch of them; of a model with two stacks, what its encoder reads.
            method: "greedy", "sample" or "beams"; unless given, as the model's generation_config.json says, or greedy.
            stop: strings that end the text before them.
            stop_tokens: ids that end a sequence, beside those of the model.
            max_new_tokens, min_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, seed, beams,
                length_penalty: those that are not given are the model's.
        """
        rows, single = self._rows(prompts)
        found = _generate.run(self, rows, self._optional(lambda: self.target_tokenizer), **options)
        texts = [one if one.text is None else one.text for one in found]
        return texts[0] if single else texts

    def stream(self, prompt: Any, **options: Any) -> Iterator[str]:
        """The text of :meth:`generate` for one prompt, piece by piece, while it is generated. Needs a tokenizer."""
        rows, single = self._rows(prompt)
        if not single:
            raise ValueError("prompt: must be one prompt, not a batch")
        shown = 0
        for found in _generate.steps(self, rows, self.target_tokenizer, **options):
            text = found[0].text or ""
            if len(text) > shown:
                yield text[shown:]
                shown = len(text)

    def fill(self, text: str, *, top: int = 5) -> list[list[Filled]]:
        """The most likely tokens for each mask of a text, such as [MASK], of a masked language model."""
        return _language.fill(self, text, top)

    def classify(self, inputs: Any, *, top: int = 5) -> list[Any]:
        """The most likely classes of a text or an image, a list of :class:`Class`; of a batch, a list of such lists."""
        if not (self.info["head"] and (self.info["pooled"] or self._sees)):
            raise ValueError("model: has no classes")
        names = self.class_names
        logits: Any = self.logits(inputs)
        single = not isinstance(logits, list) and logits.ndim == 1
        found = []
        for row in [logits] if single else logits:
            p = _language.softmax(row)
            found.append([Class(int(n), names[n], float(p[n])) for n in _language.best_of(p, top)])
        return found[0] if single else found

    def transcribe(self, sound: Any, *, language: str | None = None, task: str | None = None, **options: Any) -> Transcript:
        """What is said in a sound, by a model such as Whisper.

        Args:
            sound: the path of a WAV file of 16000 samples per second, or its samples.
            language: of the speech, such as "en"; unless given, as the model's file says, or detected.
            task: "transcribe", or "translate" into English.
            options: as in :meth:`generate`.
        """
        return _speech.transcribe(self, sound, language, task, options)

    def evaluate(self, inputs: Any, *, part: str = "test", window: int = 0, stride: int = 0) -> Score | TextScore:
        """How well the model predicts a text, or the labels of images.

        Args:
            inputs: for a decoder, a text, which is read in windows; for a Vision Transformer, :class:`Data` or where they are.
            part: of the data, "train" or "test".
            window: tokens of a window; 0: 1024, or as many as the model has positions.
            stride: tokens from window to window, which overlap; 0: half of one.
        """
        if not self._sees:
            return _language.score(self, inputs, window, stride)
        data = data_of(inputs)
        with self._lock:
            return Score(*_mha.model_evaluate(self._handle, data._handle, is_test(part)))

    def picture(self, path: str | os.PathLike[str]) -> np.ndarray:
        """A picture from a PNG or PGM file as the model reads it, (channels,rows,columns): resized, cropped and normalised as the
        file of the checkpoint says."""
        return read_picture(self, path)

    def view(
        self, path: str | os.PathLike[str] | None = None, text: str | None = None, *, target: str | None = None,
        images: Sequence[str | os.PathLike[str] | int] = (), data: str | os.PathLike[str] | None = None,
    ) -> Page:  # fmt: skip
        """An interactive page of all heads, one HTML file; what it shows is returned, and a notebook shows that.

        Args:
            path: where to write the file; unless given, it is only returned.
            text: what a text model reads.
            target: of a model with two stacks, what its decoder reads; unless given, what it generates.
            images: for a Vision Transformer: files, or numbers of test images; twenty test images unless given.
            data: where the test images are; unless given, MNIST where ``./dev data mnist`` has put it, or synthetic digits.
        """
        if self.info["vocabulary"]:
            if not isinstance(text, str):
                raise TypeError(f"text: must be a str, not {type(text)}")
            if len(text.encode()) > _LONGEST:
                raise ValueError(f"text: has more than {_LONGEST} bytes; a page shows at most 1024 tokens")
            words = ["--text=" + text] + (["--target=" + target] if target is not None else [])
        else:
            words = [str(image) for image in images] + (["--data=" + os.fspath(data)] if data is not None else [])
        with tempfile.TemporaryDirectory() as folder:
            return _page.write(path, self._file(folder), *words)

    # ---- inside

    def _rows(self, inputs: Any) -> tuple[list[np.ndarray], bool]:
        if not self.info["vocabulary"]:
            raise ValueError("inputs: this model does not read tokens")
        return token_rows(inputs, lambda: self.tokenizer)

    def _decoder_rows(self, decoder: Any) -> list[np.ndarray] | None:
        if decoder is None:
            return None
        return token_rows(decoder, lambda: self.target_tokenizer, "decoder")[0]

    def _run(self, maps: list | None, **named: Any) -> None:
        with self._lock:
            _mha.model_run(self._handle, maps, **named)

    def _is_pair(self, target: Any) -> bool:
        pair = self.info["encoder_blocks"] > 0
        if target is not None and not pair:
            raise ValueError("target: is for models with an encoder and a decoder")
        return pair

    @staticmethod
    def _map_size(a: dict[str, Any], first: int, decoder: int) -> tuple[int, int]:
        """Queries and keys of an attention, of so many tokens in the first stack and in the decoder (0: there is one stack)."""
        own = decoder if decoder and a["decoder"] else first
        return own, first if a["cross"] else own

    @staticmethod
    def _optional(tokenizer: Any) -> Tokenizer | None:
        try:
            return tokenizer()
        except (ValueError, FileNotFoundError):
            return None

    def _survey_text(self, text: Any, target: Any) -> dict[str, Any]:
        """Arguments of a survey of a text."""
        if self.info["frames"]:
            raise ValueError("model: reads audio, not text")
        pair = self._is_pair(target)
        tokenizer = self._optional(lambda: self.tokenizer)
        texts = isinstance(text, str) or (isinstance(text, (list, tuple)) and text and isinstance(text[0], str))
        named = {}
        if texts and not pair:  # what the tokenizer adds belongs to each window
            before, after = _language.sides_of(self.tokenizer)
            all = [text] if isinstance(text, str) else text
            rows = [np.asarray(self.tokenizer.encode(one, special=False), np.int32) for one in all]
            named = {"before": before if len(before) else None, "after": after if len(after) else None}
        else:
            rows, _ = self._rows(text)
        if pair:
            more = _language.targets_of(self, rows, target, 128)
            named = {"decoder_tokens": np.concatenate(more), "decoder_starts": starts_of(more)}
        if tokenizer is not None:
            drawn = np.zeros(self.info["vocabulary"], np.bool_)
            count = min(len(drawn), len(tokenizer._ordinary))
            drawn[:count] = tokenizer._ordinary[:count]
            named["drawn"] = drawn if drawn.any() else None
        return {"tokens": np.concatenate(rows), "starts": starts_of(rows), **named}

    def _marked(self, heads: Iterable[tuple[int, int]]) -> np.ndarray:
        """(heads) bool, counted through all attentions."""
        firsts = np.cumsum([0] + [a["heads"] for a in self.attentions])
        marked = np.zeros(firsts[-1], np.bool_)
        for n, head in heads:
            if not 0 <= n < len(self.attentions) or not 0 <= head < self.attentions[n]["heads"]:
                raise ValueError(f"heads: there is no head ({n}, {head})")
            marked[firsts[n] + head] = True
        return marked

    def _save(self, path: str, keep: np.ndarray | None) -> None:
        with self._lock:
            _mha.model_save(self._handle, path, keep)

    def _file(self, folder: str) -> str:
        """The model as it is now in a file: the one that it came from, or one in this folder."""
        if not self.info["file_bytes"]:
            if self._off.any():
                raise ValueError("model: heads were switched off, and this model cannot be saved; a page shows it with them")
            return os.path.abspath(self._path or "")
        name = os.path.basename(self._path or "model.safetensors")
        path = os.path.join(folder, name)
        self._save(path, None)
        return path
