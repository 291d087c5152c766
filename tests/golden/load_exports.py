#!/usr/bin/env python3
"""Loads what `nought convert` writes in transformers: load_exports.py NOUGHT FOLDER...; FOLDER: a model's, or tests/golden/open/NAME.

Needs `pip install torch transformers`. For each folder: logits of the export by transformers equal those of the folder to
1e-5, what `nought probe` computes of the export to 5e-5, and what transformers generates greedily from it is what nought
finds most likely at each of its tokens.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

PROMPT, LONGEST = 8, 40


def model_of(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    auto = transformers.AutoModelForImageTextToText if hasattr(config, "vision_config") else transformers.AutoModelForCausalLM
    experts = {"experts_implementation": "eager"} if transformers.__version__ >= "5" else {}  # others want wide rows
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **experts)
    if type(model).__name__ == "Llama4ForConditionalGeneration":  # of 5.24 fails without images
        model = model.language_model
    return model.eval(), getattr(config, "text_config", config)


def ids_of(folder, config):
    golden = pathlib.Path(folder) / "golden.safetensors"
    if golden.exists():
        return load_file(golden)["input_ids"]
    return torch.randint(3, config.vocab_size, (2, 24), generator=torch.Generator().manual_seed(1))


def probed(nought, folder, ids, scratch):
    save_file({"input_ids": ids.contiguous(), "labels": ids.clone()}, scratch / "batch.safetensors")
    command = [nought, "probe", str(folder), "--input", str(scratch / "batch.safetensors"), "--output", str(scratch / "out.safetensors")]
    subprocess.run(command, check=True, capture_output=True)
    return load_file(scratch / "out.safetensors")["logits"]


@torch.no_grad()
def check(nought, folder, scratch):
    export = scratch / "export"
    subprocess.run([nought, "convert", str(folder), str(export)], check=True, capture_output=True)
    model, config = model_of(export)
    original, _ = model_of(folder)
    ids = ids_of(folder, config)
    logits = model(input_ids=ids).logits
    moved = (logits - original(input_ids=ids).logits).abs().max().item()
    apart = (logits - probed(nought, export, ids, scratch).reshape(logits.shape)).abs().max().item()
    longest = min(LONGEST, config.max_position_embeddings)
    settings = dict(do_sample=False, min_length=longest, max_length=longest, eos_token_id=None, pad_token_id=0)
    greedy = model.generate(ids[:1, :PROMPT], attention_mask=torch.ones_like(ids[:1, :PROMPT]), **settings)
    likely = probed(nought, export, greedy, scratch).reshape(1, greedy.shape[1], -1).argmax(-1)
    wrong = (likely[:, PROMPT - 1:-1] != greedy[:, PROMPT:]).sum().item()
    right = moved <= 1e-5 and apart <= 5e-5 and wrong == 0
    print(f"{pathlib.Path(folder).name:<18} {type(model).__name__:<38} export {moved:.1e}, nought {apart:.1e}, "
          f"{wrong} of {greedy.shape[1] - PROMPT} greedy tokens differ{'' if right else '  WRONG'}", flush=True)
    return right


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("nought")
    arguments.add_argument("folders", nargs="+")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    print("transformers", transformers.__version__)
    failed = []
    for folder in options.folders:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                if not check(options.nought, folder, pathlib.Path(scratch)):
                    failed.append(folder)
            except subprocess.CalledProcessError as error:
                print(f"{pathlib.Path(folder).name:<18} {error.stderr.decode().strip()}")
                failed.append(folder)
            except Exception as error:  # a version that does not know the model: go on to the next
                print(f"{pathlib.Path(folder).name:<18} {json.dumps(str(error).splitlines()[0][:160])}")
                failed.append(folder)
    raise SystemExit(f"failed: {' '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
