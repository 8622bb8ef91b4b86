"""Models that mha has saved, opened by `transformers` beside the originals: the same tensors, config and answers.

    python tests/families/saved.py ORIGINALS SAVED      folders of models, by the same names

Prints a line for each model that differs, and how many passed."""
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_grad_enabled(False)

INPUTS = "input_ids", "attention_mask", "decoder_input_ids", "pixel_values", "input_features"


def open_model(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    model, info = kind.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    model.config._experts_implementation = "eager"  # the other one needs widths that are multiples of 16 bytes
    return model.eval().float(), {k: sorted(map(str, v)) for k, v in info.items()}


def first_output(model, folder):
    given = load_file(folder / "expected.safetensors")
    inputs = {k: given[k].float() if given[k].is_floating_point() else given[k] for k in INPUTS if k in given}
    return model(**inputs)[0]


def compare(original, saved):
    (a, info), (b, other) = open_model(original), open_model(saved)
    configs = [{k: v for k, v in m.config.to_dict().items() if k != "_name_or_path"} for m in (a, b)]
    tensors = [m.state_dict() for m in (a, b)]
    if info != other:
        return f"loading says {other}, of the original {info}"
    if configs[0] != configs[1]:
        return "another config"
    if tensors[0].keys() != tensors[1].keys():
        return "other names"
    for name, t in tensors[0].items():
        if not torch.equal(t, tensors[1][name]):
            return f"another {name}"
    return None if torch.equal(first_output(a, original), first_output(b, original)) else "other answers"


def main():
    originals, saved = map(Path, sys.argv[1:])
    passed = failed = 0
    for folder in sorted(saved.iterdir()):
        problem = compare(originals / folder.name, folder)
        passed, failed = passed + (not problem), failed + bool(problem)
        if problem:
            print(f"FAILED  {folder.name}: {problem}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
