"""`mha transcribe` beside the `transformers` library: small Whispers with random weights, windows of one second, and sounds
made of tones and noise.

    python tests/families/speech.py MHA SEED

Tokens and texts must be equal, for every kind of generation_config.json and for the options."""
import json
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

import numpy
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import logging, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
logging.set_verbosity_error()

LETTERS = 60  # tokens of one byte each; the special ones follow
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|haw|>", "<|translate|>", "<|transcribe|>",
           "<|startoflm|>", "<|nospeech|>", "<|notimestamps|>"]
ID = {name: LETTERS + n for n, name in enumerate(SPECIAL)}
LANGUAGES = {name: ID[name] for name in ("<|en|>", "<|de|>", "<|haw|>")}
TASKS = {"translate": ID["<|translate|>"], "transcribe": ID["<|transcribe|>"]}
NAMES = dict(lang_to_id=LANGUAGES, task_to_id=TASKS, no_timestamps_token_id=ID["<|notimestamps|>"], is_multilingual=True)
FORCED = [[1, None], [2, ID["<|transcribe|>"]]]

# generation_config.json, config.json, and arguments of the command that are those of generate, too.
CASES = [
    (dict(), dict(), {}),
    (NAMES, dict(), {}),
    (NAMES, dict(), dict(language="de")),
    (NAMES, dict(), dict(language="<|haw|>", task="translate")),
    (NAMES, dict(), dict(task="translate")),
    (NAMES | dict(language="<|de|>"), dict(), {}),
    (NAMES | dict(task="translate"), dict(), dict(language="en")),
    (NAMES | dict(forced_decoder_ids=FORCED), dict(), {}),
    (NAMES | dict(forced_decoder_ids=FORCED), dict(), dict(language="en", beams=3)),
    (NAMES | dict(forced_decoder_ids=[[1, ID["<|de|>"]], [2, ID["<|translate|>"]]]), dict(), {}),
    (dict(forced_decoder_ids=[[1, ID["<|notimestamps|>"]]], no_timestamps_token_id=ID["<|notimestamps|>"],
          is_multilingual=False), dict(), {}),
    (dict(no_timestamps_token_id=ID["<|notimestamps|>"]), dict(forced_decoder_ids=[[1, 5], [2, 7]]), {}),
]


def tokenizer(folder):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:LETTERS - 1]
    vocabulary = {letter: n for n, letter in enumerate(letters + ["\u0120"])}
    it = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    it.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    it.decoder = decoders.ByteLevel()
    it.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    it.save(str(folder / "tokenizer.json"))
    return it


def make_model(r, folder, generation, config):
    c = WhisperConfig(vocab_size=LETTERS + len(SPECIAL) + 6, num_mel_bins=int(r.choice([16, 80])), d_model=32,
                      encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
                      encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=50, max_target_positions=40,
                      pad_token_id=ID["<|endoftext|>"], bos_token_id=ID["<|endoftext|>"],
                      eos_token_id=ID["<|endoftext|>"], decoder_start_token_id=ID["<|startoftranscript|>"])
    model = WhisperForConditionalGeneration(c).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            size = 0.1 if "embed_tokens" in name else 0.3  # small ones, lest every token repeat itself
            values = r.standard_normal(p.shape)
            p.copy_(torch.from_numpy(1 + 0.2 * values if name.endswith("norm.weight") else size * values))
    timestamps = range(ID["<|notimestamps|>"] + 1, c.vocab_size)  # at which the library would begin another segment
    model.generation_config.suppress_tokens = [int(n) for n in r.choice(LETTERS, 10, replace=False)] + list(timestamps)
    model.generation_config.begin_suppress_tokens = [3, ID["<|endoftext|>"]]
    model.generation_config.max_length = None
    for key, value in generation.items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    for key, value in config.items():
        setattr(model.config, key, value)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    return model.double()


def make_sound(r, path, seconds):
    t = numpy.arange(int(16000 * seconds)) / 16000
    sound = sum(numpy.sin(2 * numpy.pi * f * t + f) for f in r.uniform(80, 4000, 5)) * 0.1 + 0.02 * r.standard_normal(t.size)
    samples = numpy.clip(sound * 32768 * numpy.sin(3 * t + 1), -32768, 32767).astype(numpy.int16)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return samples.astype(numpy.float32) / 32768


def expected(model, samples, given, most):
    extract = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins, chunk_length=1)
    beams, windows = given.get("beams", 1), []
    options = {key: value for key, value in given.items() if key != "beams"}
    for first in range(0, len(samples), 16000):
        features = extract(samples[first:first + 16000], sampling_rate=16000, return_tensors="pt")["input_features"]
        ids = model.generate(features.double(), max_new_tokens=most, num_beams=beams, do_sample=False, **options)[0]
        windows.append(ids.tolist())
    return windows


def cut(ids):
    """New tokens up to the end token. The library's come without the prompt."""
    end = ID["<|endoftext|>"]
    return ids[:ids.index(end)] if end in ids else ids


def main(mha, seed):
    passed = failed = varied = 0
    r = numpy.random.default_rng(seed)
    for number, (generation, config, given) in enumerate(CASES):
        with tempfile.TemporaryDirectory() as name:
            folder, sound = Path(name), Path(name) / "sound.wav"
            tok = tokenizer(folder)
            model = make_model(r, folder, generation, config)
            detects = not given.get("language") and "lang_to_id" in generation
            samples = make_sound(r, sound, r.uniform(0.1, 1) if detects else r.uniform(1.1, 2.9))
            most = int(r.integers(5, 20))
            want = expected(model, samples, given, most)
            arguments = [word for key, value in given.items() for word in (f"--{key}", str(value))]
            out = subprocess.run([mha, "transcribe", name, str(sound), "--json", "--quiet", "--tokens", str(most), *arguments],
                                 capture_output=True, text=True)
            if out.returncode:
                print(f"FAILED  transcribe {number}: {out.stderr.strip()}")
                failed += 1
                continue
            got = json.loads(out.stdout)["files"][0]
            ours = [cut(w["tokens"]) for w in got["windows"]]
            theirs = [cut(ids) for ids in want]
            text = "".join(tok.decode(ids) for ids in theirs).lstrip(" ")
            good = ours == theirs and got["text"] == text
            varied += len(set(ours[0])) > 1
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAILED  transcribe {number}: {got['prompt']} {ours}, not {want}; {got['text']!r}, not {text!r}")
    if varied < len(CASES) / 2:
        print("FAILED  transcribe: most texts repeat one token")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
