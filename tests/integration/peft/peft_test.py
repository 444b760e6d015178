#!/usr/bin/env python3
"""LoRA adapters cross over in both directions (method.md, acceptance item 16), by the programs and the real PEFT:

    peft_test.py BIN DATA      # build/bin and tests/data

dex-trainer trains an adapter, PEFT loads its folder unchanged and must give the log-probabilities of dex-engine;
folders that PEFT saved must give PEFT's in dex-engine.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
import transformers

TOKENS = [5, 17, 3, 90, 41, 8, 8, 60, 2, 33, 71, 12]
LIMIT = 1e-4


def by_engine(binaries, model, adapter):
    out = subprocess.run(
        [binaries / "dex-engine", "score", "--model", model, "--adapter", adapter, "--dtype", "f32", "--threads", "1",
         "--tokens", ",".join(map(str, TOKENS))], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def by_peft(model, adapter):
    base = transformers.LlamaForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # missing or unexpected keys are only warnings to PEFT
        adapted = peft.PeftModel.from_pretrained(base, adapter).eval()
    with torch.no_grad():
        logits = adapted(input_ids=torch.tensor([TOKENS])).logits[0].float()
        plain = adapted.unload()(input_ids=torch.tensor([TOKENS])).logits[0].float()
    scores = torch.log_softmax(logits, -1)
    assert (logits - plain).abs().max() > 1e-3, f"{adapter} changes nothing in PEFT"
    return [scores[i, TOKENS[i + 1]].item() for i in range(len(TOKENS) - 1)]


def expect_close(name, found, expected):
    worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
    print(f"{name}: largest difference of a log-probability {worst:.2e}")
    assert math.isfinite(worst) and worst < LIMIT, name


def train(binaries, data, out, method, first_layer):
    spec = {"modelDir": str(data / "train/model"), "trainingPath": str(data / "train/rows.jsonl"), "threads": 1,
            "attemptDir": str(out),
            "spec": {"seed": "5", "lora": method, "validationSplit": 0,
                     "hyperparameters": {"maxSteps": 12, "maxSeqLength": 64, "batchSize": 4, "learningRate": 1e-2,
                                         "firstLayer": first_layer}}}
    (out / "spec.json").write_text(json.dumps(spec))
    subprocess.run([binaries / "dex-trainer", "--spec", out / "spec.json"], check=True, capture_output=True)
    return out / "final"


def main():
    binaries, data = map(pathlib.Path, sys.argv[1:])
    torch.set_num_threads(1)
    model = data / "train/model"
    methods = [({"r": 4, "alpha": 8}, 0),
               ({"r": 2, "alpha": 5, "dropout": 0.1, "useRslora": True,
                 "targetModules": ["q_proj", "gate_proj", "up_proj", "down_proj"]}, 0),
               ({"r": 4, "alpha": 8}, 1)]  # PEFT's layers_to_transform
    for index, (method, first_layer) in enumerate(methods):
        with tempfile.TemporaryDirectory() as directory:
            adapter = train(binaries, data, pathlib.Path(directory), method, first_layer)
            expect_close(f"ours {index} in PEFT", by_peft(model, adapter), by_engine(binaries, model, adapter))
    for folder in sorted((data / "lora").iterdir()):
        if folder.is_dir():
            expect_close(f"PEFT's {folder.name} here", by_engine(binaries, model, folder), by_peft(model, folder))


if __name__ == "__main__":
    main()
