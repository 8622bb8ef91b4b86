"""Text to ids and back."""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple, Sequence

import numpy as np

from mha import _mha


class Token(NamedTuple):
    """A token of a text."""

    id: int
    piece: str  #: as the vocabulary spells it
    type: int  #: of the segment, as BERT has them
    text: str  #: what it stands for; "" for tokens that the tokenizer adds


class Tokenizer:
    """A tokenizer from its files: tokenizer.json, a SentencePiece model, vocab.json and merges.txt, vocab.txt, llama2.c's
    tokenizer.bin, or a folder that has one of these.

    Args:
        path: the file or folder.
        target: of files with two vocabularies, such as Marian's, that of the target.
        cased: for a vocab.txt without a tokenizer_config.json: text is not changed to lower case.

    Results are those of the libraries that the files come from. Several threads may use a tokenizer at a time.

    >>> import mha, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tokenizer = mha.Tokenizer.train("the cat sat on the mat " * 20, os.path.join(folder, "tokenizer.json"), tokens=270)
    >>> tokenizer.decode(tokenizer.encode("the cat"))
    'the cat'
    """

    @classmethod
    def train(
        cls, text: str, path: str | os.PathLike[str], *, tokens: int = 4096, least: int = 1, special: str = "<|endoftext|>"
    ) -> Tokenizer:
        """Learns a byte-level BPE tokenizer from a text, saves it as a tokenizer.json and opens it.

        Args:
            path: the file, which is replaced atomically.
            tokens: of the vocabulary, at least 257: the special token, 256 bytes, merges.
            least: a pair is merged if it occurs so often.
            special: the special token, id 0.
        """
        _mha.tokenizer_train(os.fspath(path), _text(text), tokens, least, special)
        return cls(path)

    def __init__(self, path: str | os.PathLike[str], *, target: bool = False, cased: bool = False):
        self._handle = _mha.tokenizer_open(os.fspath(path), target, cased)
        #: kind, format, tokens (the size of the vocabulary), and the ids bos, eos, unk, pad, mask, cls and sep, or -1.
        self.info: dict[str, Any] = _mha.tokenizer_about(self._handle)

    def __len__(self) -> int:
        return self.info["tokens"]

    def __repr__(self) -> str:
        return f"<mha.Tokenizer {self.info['kind']}, {self.info['tokens']} tokens>"

    def encode(self, text: str, *, special: bool = True, literal: bool = False) -> list[int]:
        """The ids of a text.

        Args:
            special: add the tokens that belong at its sides, such as [CLS] and [SEP].
            literal: special tokens that are spelled out in the text are text: for text from strangers.
        """
        return [token[0] for token in _mha.tokenizer_encode(self._handle, _text(text), special, literal)]

    def tokens(self, text: str, *, special: bool = True, literal: bool = False) -> list[Token]:
        """The tokens of a text, with what each stands for."""
        found = _mha.tokenizer_encode(self._handle, _text(text), special, literal)
        bytes_ = text.encode()
        return [
            Token(id, self.piece(id) or "", type, bytes_[start:end].decode(errors="replace") if own else "")
            for id, type, own, start, end in found
        ]

    def _first_bytes(self, text: str) -> int:
        """How many bytes of a text its first token stands for; 0 for a token that the tokenizer adds."""
        found = _mha.tokenizer_encode(self._handle, _text(text), True, False)
        return found[0][4] if found and found[0][2] else 0

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids; with ``special``, special tokens are spelled out."""
        return _mha.tokenizer_decode(self._handle, vector(ids, "ids"), special)

    def id(self, piece: str) -> int | None:
        """The id of a piece; None if there is none."""
        found = _mha.tokenizer_id(self._handle, piece)
        return None if found < 0 else found

    def is_special(self, id: int) -> bool:
        """Whether an id is a special token, which decoding leaves out, or has no piece."""
        return not (0 <= id < len(self._ordinary) and self._ordinary[id])

    @functools.cached_property
    def _ordinary(self) -> np.ndarray:
        """For each id: whether it has a piece and is not special."""
        return np.frombuffer(_mha.tokenizer_ordinary(self._handle, len(self)), np.bool_)

    def piece(self, id: int) -> str | None:
        """The piece of an id, as the vocabulary spells it; None if there is none."""
        return _mha.tokenizer_piece(self._handle, id)


def _text(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"text: must be a str, not {type(text)}")
    return text


def vector(ids: Sequence[int] | np.ndarray, name: str) -> np.ndarray:
    """Ids as a dense int32 vector."""
    made = np.asarray(ids)
    if made.ndim != 1 or (made.size and made.dtype.kind not in "iu"):
        raise TypeError(f"{name}: must be a sequence of whole numbers")
    if made.size and (made.min() < -(1 << 31) or made.max() >= 1 << 31):
        raise ValueError(f"{name}: has numbers that do not fit 32 bits")
    return np.ascontiguousarray(made, np.int32)
