"""What is said in sounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mha import _generate, _mha
from mha._inputs import read_samples, words_of
from mha._language import read_tokens
from mha._tokenizer import vector

_RATE, _HOP = 16000, 160
_NOTHING = np.empty(0, np.int32)


class Said(NamedTuple):
    """What is said in a window of a sound."""

    start: float  #: in seconds
    end: float
    text: str
    tokens: list[int]


class Transcript(NamedTuple):
    """What is said in a sound."""

    text: str
    language: str  #: as the model names it; "" if it does not
    task: str
    detected: bool  #: the language was
    windows: list[Said]


def _features(model: Any, samples: np.ndarray) -> np.ndarray:
    found = np.empty((1, model.info["bins"], model.info["frames"]), np.float32)
    _mha.speech_features(samples, found)
    return found


def _check(model: Any) -> None:
    if not model.info["frames"]:
        raise ValueError("model: does not read audio; a Whisper does")


def _start(model: Any, features: np.ndarray, language: str | None, task: str | None) -> tuple:
    with model._lock:
        return _mha.speech_start(model._handle, features, language, task)


def transcribe(model: Any, sound: Any, language: str | None, task: str | None, options: dict[str, Any]) -> Transcript:
    """Windows one after another, as ``mha transcribe`` does."""
    _check(model)
    samples = read_samples(sound)
    if not len(samples):
        raise ValueError("sound: has no samples")
    window = model.info["frames"] * _HOP
    said: list[Said] = []
    prompt: Any = None
    for first in range(0, len(samples), window):
        piece = samples[first : first + window]
        features = _features(model, piece)
        if prompt is None:
            prompt = _start(model, features, language, task)
        one = _generate.run(model, [_NOTHING], model.target_tokenizer, features=features,
                            decoder=[np.asarray(prompt[0], np.int32)], **options)[0]  # fmt: skip
        said.append(Said(first / _RATE, (first + len(piece)) / _RATE, one.text or "", one.tokens[one.prompt :]))
    return Transcript("".join(one.text for one in said).strip(), prompt[1], prompt[2], prompt[3], said)


def attended(model: Any, sound: Any, target: Any) -> tuple[dict, list[str], list[str]]:
    """Arguments of a run over the first window of a sound, and what stands at each position of both stacks."""
    features = _features(model, read_samples(sound)[: model.info["frames"] * _HOP])
    prompt = _start(model, features, None, None)[0]
    if target is None:
        start = [np.asarray(prompt, np.int32)]
        ids = read_tokens(_generate.run(model, [_NOTHING], None, features=features, decoder=start)[0])
    elif isinstance(target, str):
        ids = prompt + model.target_tokenizer.encode(target, special=False)
    else:
        ids = target
    row = vector(ids, "target")
    times = [f"{n * 2 * _HOP / _RATE:.2f} s" for n in range(model.info["frames"] // 2)]
    words = words_of(row, model._optional(lambda: model.target_tokenizer))
    return {"features": features, "decoder_tokens": row[None]}, times, words
