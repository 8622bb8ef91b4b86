"""Log-mel features of `transformers`, for test_audio:

    python tests/families/mel.py FILE.safetensors [SOUND.wav]     then MHA_MEL=FILE.safetensors build/tests/test_audio

The sound is a WAV file of 16 kHz and 16 bits or, without one, tones and noise of a new seed, which is printed."""
import random
import sys
import wave

import numpy
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor


def tones(seed):
    r = numpy.random.default_rng(seed)
    t = numpy.arange(16000 * r.integers(1, 35)) / 16000
    pitch = 100 * numpy.exp(numpy.cumsum(r.normal(0, 0.01, t.size)) * 0.05)
    voice = sum(numpy.sin(2 * numpy.pi * k * numpy.cumsum(pitch) / 16000) / k for k in range(1, 12))
    return 0.1 * voice * (1 + numpy.sin(7 * t)) + r.normal(0, 0.003, t.size)


if len(sys.argv) > 2:
    with wave.open(sys.argv[2]) as file:
        samples = numpy.frombuffer(file.readframes(file.getnframes()), numpy.int16) / 32768
else:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    samples = tones(seed)
samples = samples.astype(numpy.float32)
features = {f"features.{n}": WhisperFeatureExtractor(feature_size=n)(samples, sampling_rate=16000)["input_features"][0]
            for n in (80, 128)}
save_file(features | dict(samples=samples), sys.argv[1])
