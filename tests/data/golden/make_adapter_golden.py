#!/usr/bin/env python3
"""Makes adapter.json: what transformers answers with randomly made adapters of our format, in fp32.

    .deps/peers/bin/python tests/data/golden/make_adapter_golden.py    # after make_golden.py

The adapters are large, so the file holds the rule that makes them (README.md) and not their tensors. The branch is a
hook before o_proj, written from method.md §3.1 and independent of the C++ code.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from make_golden import HERE, MODEL, rounded, sha256

CASES = {
    "paper_shared": {"form": "paper", "projection": "shared", "sign": "minus", "train": "dex_only"},
    "paper_shared_kvo": {"form": "paper", "projection": "shared", "sign": "minus", "train": "kvo+dex"},
    "head_mean_per_head_kvo": {"form": "head_mean", "projection": "per_head", "sign": "plus", "train": "kvo+dex"},
}
W_D_SCALE, KVO_SCALE, GATE_SCALE = 0.6, 0.2, 1.0
TENSORS = ["w_d", "k_proj", "v_proj", "o_proj", "gate"]  # a tensor's number: 8·layer + its place here


def uniform(tensor, count):
    """count numbers in [−½, ½) of tensor number `tensor`: a mixed 32-bit counter."""
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x85EBCA6B) + np.uint32((tensor * 0x9E3779B9) % 2**32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    return (x.astype(np.float64) / 2**32 - 0.5).astype(np.float32)


def number(layer, name):
    return 8 * layer + TENSORS.index(name)


def heads_of(layer, count):
    return [head for head in range(count) if (head + layer) % 3 != 0]


class Branch:
    """O'_h = O_h + s·λ·m_h·D_h of one layer."""

    def __init__(self, case, layer, config):
        heads, width = config.num_attention_heads, config.head_dim
        shape = (width, width) if case["projection"] == "shared" else (heads, width, width)
        self.w_d = torch.from_numpy(uniform(number(layer, "w_d"), int(np.prod(shape))) * np.float32(W_D_SCALE)).view(shape)
        self.gate = torch.zeros(heads)
        if case["form"] == "head_mean":
            self.gate = torch.from_numpy(uniform(number(layer, "gate"), heads) * np.float32(GATE_SCALE))
        self.strength = torch.zeros(heads)
        self.strength[heads_of(layer, heads)] = lambda_of(layer) * (1 if case["sign"] == "plus" else -1)

    def __call__(self, module, inputs):
        o = inputs[0].unflatten(-1, (len(self.gate), -1))  # [B, T, H, d]
        projected = (o.unsqueeze(-2) @ self.w_d).squeeze(-2)
        difference = projected - self.gate.view(-1, 1) * o.mean(-2, keepdim=True)
        return (o + self.strength.view(-1, 1) * difference).flatten(-2)


def lambda_of(layer):
    return 0.2 + 0.01 * layer


def answer(model, case, tokens):
    """Log-probability of each token from the second on, with the case's adapter."""
    config, before, hooks = model.config, {}, []
    for layer, block in enumerate(model.model.layers):
        attention = block.self_attn
        hooks.append(attention.o_proj.register_forward_pre_hook(Branch(case, layer, config)))
        for name in ("k_proj", "v_proj", "o_proj") if case["train"] == "kvo+dex" else ():
            weight = getattr(attention, name).weight
            before[weight] = weight.clone()
            factor = 1 + np.float32(KVO_SCALE) * uniform(number(layer, name), weight.numel())
            weight.mul_(torch.from_numpy(factor).view_as(weight))
    logprobs = torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1)
    for hook in hooks:
        hook.remove()
    for weight, values in before.items():
        weight.copy_(values)
    return rounded(logprobs[range(len(tokens) - 1), tokens[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, metavar="DIR")
    args = parser.parse_args()
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    golden = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
    base = golden["cases"]["code"]
    tokens = base["prompt"] + base["greedy"]
    heads = model.config.num_attention_heads
    layers = range(model.config.num_hidden_layers)
    rule = {"w_d_scale": W_D_SCALE, "kvo_scale": KVO_SCALE, "gate_scale": GATE_SCALE, "tensors": TENSORS,
            "first_of_tensor_5": [float(value) for value in uniform(5, 4)],
            "selected_heads": [heads_of(layer, heads) for layer in layers],
            "lambda": [round(lambda_of(layer), 9) for layer in layers]}
    cases = {name: case | {"token_logprobs": answer(model, case, tokens)} for name, case in CASES.items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    source = {"script": Path(__file__).name, "weights_sha256": sha256(args.model / "model.safetensors")}
    (HERE / "adapter.json").write_text(
        f'{{"source": {json.dumps(source)},\n "rule": {json.dumps(rule)},\n "tokens": {json.dumps(tokens)},\n'
        f' "base_token_logprobs": {json.dumps(base["token_logprobs"])},\n "cases": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
