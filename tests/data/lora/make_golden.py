#!/usr/bin/env python3
"""Makes LoRA adapters with PEFT itself and stores what PEFT computes with them, on the tiny model of tests/data/train.

    .deps/peers/bin/python tests/data/lora/make_golden.py

Writes, beside this script, for each case a folder as PEFT's save_pretrained leaves it (adapter_config.json,
adapter_model.safetensors) and golden.json: the tokens, and the logits of the last position and the sum of squares of
all logits by case. Both factors are random, so every term acts.
"""

import json
import pathlib
import shutil

import peft
import torch
import transformers

HERE = pathlib.Path(__file__).parent
BASE = HERE.parent / "train" / "model"
TOKENS = [5, 17, 3, 90, 41, 8, 8, 60, 2, 33, 71, 12]

CASES = {
    "attention": dict(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "all_rslora": dict(r=3, lora_alpha=5, use_rslora=True,
                       target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "patterns": dict(r=2, lora_alpha=6, target_modules=["q_proj", "mlp.down_proj", "up_proj"], layers_to_transform=[0, 1],
                     rank_pattern={"down_proj": 5, "model.layers.1.self_attn.q_proj": 3},
                     alpha_pattern={"up_proj": 9}, exclude_modules=["model.layers.0.mlp.up_proj"]),
    "one_layer_bf16": dict(r=2, lora_alpha=4, target_modules=["v_proj", "gate_proj"], layers_to_transform=[1]),
}


def main():
    torch.set_num_threads(1)
    golden = {"source": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
              "tokens": TOKENS, "cases": {}}
    for index, (name, options) in enumerate(CASES.items()):
        base = transformers.LlamaForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="eager")
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **options)).eval()
        generator = torch.Generator().manual_seed(100 + index)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "lora_" in key:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
                    if name.endswith("bf16"):
                        parameter.copy_(parameter.bfloat16())
            logits = model(input_ids=torch.tensor([TOKENS])).logits[0]
        if name.endswith("bf16"):
            for key, parameter in model.named_parameters():
                if "lora_" in key:
                    parameter.data = parameter.data.bfloat16()
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        # A path of this machine says nothing to others.
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = "tiny"
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        golden["cases"][name] = {"last": logits[-1].tolist(), "squares": logits.double().pow(2).sum().item()}
    (HERE / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
