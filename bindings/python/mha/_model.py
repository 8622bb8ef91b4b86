"""Models from the checkpoints that people have."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from mha import _mha
from mha._tokenizer import Tokenizer, vector

_FINISH = (None, "end", "stop", "length", "cancelled")
_METHODS = {None: 0, "greedy": 1, "sample": 2, "beams": 3}


class Generated(NamedTuple):
    """A sequence that was generated."""

    text: str | None  #: of the new tokens; None for a model without a tokenizer
    tokens: list[int]  #: the prompt and the new ones
    prompt: int  #: how many of them are the prompt
    finish: str | None  #: why it has ended: "end", "stop" or "length"; None while it has not
    score: float  #: of a beam search


class Attention(NamedTuple):
    """The weights of all heads for one text."""

    tokens: list[str]  #: what stands at each position
    maps: list[np.ndarray]  #: one (H,T,T) for each attention, in the order of Model.attentions


class Head(NamedTuple):
    """What a head attends to: means over the windows of a text. NaN where a number does not apply."""

    attention: int
    block: int
    head: int
    decoder: bool
    cross: bool
    words: str  #: the role in words, such as "the previous token"
    entropy: float
    uniform: float
    effective: float
    largest: float
    distance: float
    itself: float
    previous: float
    next: float
    first: float
    last: float
    duplicate: float
    induction: float
    chance: float
    position: float
    content: float
    monotone: float


def _starts(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)


class Model:
    """A transformer from a folder as the transformers library saves it, a Vision Transformer's safetensors file, or a checkpoint
    of llama2.c; without PyTorch.

    Args:
        path: the folder or file.
        tokenizer: a :class:`Tokenizer` or its path; unless given, the one beside the model is opened when it is needed.
        dtype: "float32", or "bfloat16", in which factors of products are rounded.
        heads: heads per block, for files that do not say.

    Text goes in as a str, as a list of ids, or as a list of either; the last is a batch. One call uses a model at a time;
    others wait.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        tokenizer: Tokenizer | str | os.PathLike | None = None,
        dtype: str = "float32",
        heads: int = 0,
    ):
        if dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype: {dtype!r} must be 'float32' or 'bfloat16'")
        self._path = os.fspath(path)
        self._handle = _mha.model_open(self._path, heads, dtype == "bfloat16")
        self._lock = threading.Lock()
        self._tokenizer = tokenizer if tokenizer is None or isinstance(tokenizer, Tokenizer) else Tokenizer(tokenizer)
        #: family, parameters, blocks, width, heads, classes, vocabulary, positions, ...
        self.info: dict = _mha.model_about(self._handle)
        #: one dict for each attention: block, heads, kv_heads, width, decoder, cross
        self.attentions: list[dict] = _mha.model_attentions(self._handle)

    def __repr__(self) -> str:
        info = self.info
        return f"<mha.Model {info['family']}, {info['blocks']} blocks, {info['heads']} heads, {info['parameters']} parameters>"

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the model, or the one that was given."""
        if self._tokenizer is None:
            folder = self._path if os.path.isdir(self._path) else os.path.dirname(self._path) or "."
            self._tokenizer = Tokenizer(folder)
        return self._tokenizer

    @property
    def description(self) -> dict:
        """All that defines the model: what goes in, the blocks, what comes out."""
        return json.loads(_mha.model_describe(self._handle))

    # ---- running

    def logits(self, inputs: Any, decoder: Any = None) -> np.ndarray | list[np.ndarray]:
        """The logits of a text: (T,classes), or (classes) for a model that gives one answer; of a batch, a list of these.

        Args:
            inputs: a text or a batch of them; for a Vision Transformer, images (B,channels,rows,columns) from 0 to 1, or one.
            decoder: for a model with two stacks: what its decoder reads, likewise.
        """
        if not self.info["vocabulary"]:
            return self._image_logits(inputs)
        rows, single = self._rows(inputs)
        more = self._rows(decoder)[0] if decoder is not None else None
        named, lengths = self._inputs(rows, more)
        last = lengths if more is None else np.array([len(row) for row in more])
        shape = (len(rows), self.info["classes"]) if self.info["pooled"] else (len(rows), last.max(), self.info["classes"])
        logits = np.empty(shape, np.float32)
        self._run(None, logits=logits, **named)
        found = [row if self.info["pooled"] else row[:n] for row, n in zip(logits, last)]
        return found[0] if single else found

    def hidden(self, inputs: Any) -> np.ndarray | list[np.ndarray]:
        """The rows before each block and after the last one, (L+1,T,M); of a batch, a list of these. For one stack."""
        self._one_stack("hidden states")
        rows, single = self._rows(inputs)
        named, lengths = self._inputs(rows)
        hidden = np.empty((self.info["blocks"] + 1, len(rows), lengths.max(), self.info["width"]), np.float32)
        self._run(None, hidden=hidden, **named)
        found = [hidden[:, b, :n] for b, n in enumerate(lengths)]
        return found[0] if single else found

    def embed(self, texts: Any, *, pool: str = "mean", normalize: bool = True) -> np.ndarray:
        """Sentence embeddings: (M), or (B,M) of a batch: the mean of the last rows of all tokens, or with ``pool="first"`` that
        of the first token; of length 1 unless ``normalize`` is off."""
        if pool not in ("mean", "first"):
            raise ValueError(f"pool: {pool!r} must be 'mean' or 'first'")
        rows, single = self._rows(texts)
        found = []
        for row in rows:
            last = self.hidden(row)[-1].astype(np.float64)
            one = last[0] if pool == "first" else last.mean(0)
            norm = np.linalg.norm(one)
            found.append((one / norm if normalize and norm > 0 else one).astype(np.float32))
        return found[0] if single else np.stack(found)

    def attention(self, text: Any) -> Attention:
        """The weights of all heads for one text. For models with one stack."""
        self._one_stack("attention maps")
        rows, single = self._rows(text)
        if not single:
            raise ValueError("text: must be one text, not a batch")
        named, lengths = self._inputs(rows)
        maps = [np.empty((1, a["heads"], lengths[0], lengths[0]), np.float32) for a in self.attentions]
        self._run(maps, **named)
        return Attention(self._words(rows[0]), [one[0] for one in maps])

    def heads(self, text: Any, *, window: int = 0, windows: int = 64, repeats: int = 16, seed: int = 1) -> list[Head]:
        """What every head attends to, over windows of a text. For models with one stack.

        Args:
            window: tokens of a window; 0: 128, or as many as the model has positions.
            windows: at most so many, evenly spaced.
            repeats: sequences of repeated random tokens, which induction heads are found with.
        """
        self._one_stack("surveys of heads")
        rows, _ = self._rows(text)
        with self._lock:
            found = _mha.model_heads(self._handle, tokens=np.concatenate(rows), starts=_starts(rows), window=window,
                                     windows=windows, repeats=repeats, seed=seed)  # fmt: skip
        return [Head(**head) for head in found]

    # ---- generation

    def generate(
        self, prompts: Any, *, method: str | None = None, stop: str | Sequence[str] = (), stop_tokens: Sequence[int] = (),
        **options: Any,
    ) -> Any:  # fmt: skip
        """Continues a prompt: its text, or for a batch a list of texts; :class:`Generated` where there is no tokenizer.

        Args:
            prompts: a text or a batch of them.
            method: "greedy", "sample" or "beams"; unless given, as the model's generation_config.json says, or greedy.
            stop: strings that end the text before them.
            stop_tokens: ids that end a sequence, beside those of the model.
            options: max_new_tokens, min_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram,
                seed, beams, length_penalty; those that are not given are the model's.
        """
        steps = list(self._steps(prompts, method, stop, stop_tokens, options))
        found, single = steps[-1]
        texts = [one if one.text is None else one.text for one in found]
        return texts[0] if single else texts

    def stream(self, prompt: Any, *, method: str | None = None, stop: str | Sequence[str] = (),
               stop_tokens: Sequence[int] = (), **options: Any) -> Iterator[str]:  # fmt: skip
        """The text of :meth:`generate` for one prompt, piece by piece, while it is generated. Needs a tokenizer."""
        shown = 0
        self.tokenizer
        for found, single in self._steps(prompt, method, stop, stop_tokens, options):
            if not single:
                raise ValueError("prompt: must be one prompt, not a batch")
            text = found[0].text or ""
            if len(text) > shown:
                yield text[shown:]
                shown = len(text)

    def _steps(self, prompts, method, stop, stop_tokens, options) -> Iterator[tuple[list[Generated], bool]]:
        if method not in _METHODS:
            raise ValueError(f"method: {method!r} must be 'greedy', 'sample' or 'beams'")
        rows, single = self._rows(prompts)
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        tokenizer = self._optional_tokenizer()
        with self._lock:
            handle = _mha.generation_create(
                self._handle, tokenizer, stop, tokens=np.concatenate(rows), starts=_starts(rows),
                stop_tokens=vector(stop_tokens, "stop_tokens") if len(stop_tokens) else None, method=_METHODS[method], **options,
            )  # fmt: skip
        ended = False
        while not ended:
            with self._lock:
                ended = _mha.generation_step(handle)
            yield [_sequence(handle, n, tokenizer is not None) for n in range(len(rows))], single

    def _optional_tokenizer(self) -> Any:
        try:
            return self.tokenizer._handle
        except ValueError:
            return None

    # ---- what goes in

    def _rows(self, inputs: Any) -> tuple[list[np.ndarray], bool]:
        """Token ids of each text, and whether there is one that is not in a list."""
        single = isinstance(inputs, str) or not len(inputs) or not isinstance(inputs[0], (str, list, tuple, np.ndarray))
        if not self.info["vocabulary"]:
            raise ValueError("inputs: this model does not read tokens")
        rows = [inputs] if single else list(inputs)
        return [
            np.asarray(self.tokenizer.encode(row), np.int32) if isinstance(row, str) else vector(row, "tokens") for row in rows
        ], single

    def _inputs(self, rows: list[np.ndarray], decoder: list[np.ndarray] | None = None) -> tuple[dict, np.ndarray]:
        """Arguments of a run, with padding, and the lengths."""
        lengths = np.array([len(row) for row in rows], np.int64)
        if not lengths.size or not lengths.min():
            raise ValueError("inputs: a text has no tokens")
        named = {"tokens": _pad(rows), "lengths": lengths}
        if decoder is not None:
            if len(decoder) != len(rows):
                raise ValueError(f"decoder: has {len(decoder)} texts, must have {len(rows)}")
            named["decoder_tokens"] = _pad(decoder)
        return named, lengths

    def _run(self, maps: list | None, **named: Any) -> None:
        with self._lock:
            _mha.model_run(self._handle, maps, **named)

    def _image_logits(self, images: Any) -> np.ndarray:
        pixels = np.asarray(images, np.float32)
        single = pixels.ndim == 3
        if pixels.ndim not in (3, 4):
            raise ValueError(f"images: have shape {pixels.shape}, must be (channels,rows,columns) or a batch of that")
        pixels = pixels[None] if single else pixels
        logits = np.empty((len(pixels), self.info["classes"]), np.float32)
        self._run(None, images=pixels, logits=logits)
        return logits[0] if single else logits

    def _one_stack(self, what: str) -> None:
        if self.info["encoder_blocks"]:
            raise ValueError(f"model: has an encoder and a decoder; {what} are for models with one stack")

    def _words(self, row: np.ndarray) -> list[str]:
        try:
            return [self.tokenizer.decode([id], special=True) for id in row]
        except ValueError:
            return [str(id) for id in row]


def _sequence(handle: Any, n: int, has_text: bool) -> Generated:
    tokens, prompt, finish, score, text = _mha.generation_get(handle, n)
    return Generated(text if has_text else None, tokens, prompt, _FINISH[finish], score)


def _pad(rows: list[np.ndarray]) -> np.ndarray:
    padded = np.zeros((len(rows), max(len(row) for row in rows)), np.int32)
    for to, row in zip(padded, rows):
        to[: len(row)] = row
    return padded
