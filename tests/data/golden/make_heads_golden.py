#!/usr/bin/env python3
"""Makes heads.json: entropy and importance of every attention head, computed directly by transformers in fp64.

    .deps/peers/bin/python tests/data/golden/make_heads_golden.py    # after deploy/setup/all and deploy/setup/peers

method.md §4.1 from the maps of output_attentions, §4.2 from a gate on each head's output (a hook before o_proj). In fp64, because
some heads look at one token only: of an entropy of 5e-5 nats, fp32 weights near 1 know two digits; and an importance is the
absolute value of a sum whose terms nearly cancel. transformers computes softmax and norms in fp32 whatever the model's type is, so
both are put in their place in fp64 here. The angles of RoPE are fp32 numbers by definition, their cosines too.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama import modeling_llama

from make_golden import HERE, MODEL, sha256

I_MIN = 32
TEXTS = [
    "def read_lines(path, encoding=\"utf-8\"):\n    \"\"\"Yields the lines of a file without their ends.\"\"\"\n"
    "    with open(path, encoding=encoding) as file:\n        for line in file:\n            yield line.rstrip(\"\\n\")\n",
    "Rain that falls on a hill runs down to the stream, and the stream runs to the sea. On its way it carries sand, "
    "leaves and whatever the wind has left behind; where the valley widens it slows and drops the heavy grains first.",
]


class Gates:
    """ξ = 1 on each head's output, a vector a layer; its gradient is what importance is made of."""

    def __init__(self, model):
        heads = model.config.num_attention_heads
        self.values = [torch.ones(heads, dtype=torch.float64, requires_grad=True) for _ in model.model.layers]
        for gate, layer in zip(self.values, model.model.layers):
            layer.self_attn.o_proj.register_forward_pre_hook(
                lambda module, inputs, gate=gate: (inputs[0].unflatten(-1, (heads, -1)) * gate.view(-1, 1)).flatten(-2))


def softmax_in_fp64(scores, dim, dtype=None):
    """transformers' attention asks for fp32 here whatever the model's type is."""
    return torch.softmax(scores.double(), dim)


def norm_in_fp64(self, x):
    """LlamaRMSNorm without its rounding to fp32."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def rope_of_fp32_angles(self, x, position_ids):
    """Cosines of the fp32 angles, rounded once: torch's own are up to an ulp from that."""
    angles = position_ids[..., None].float() * self.inv_freq.float()
    angles = torch.cat((angles, angles), dim=-1).double()
    return angles.cos().float().double(), angles.sin().float().double()


def entropy(attentions):
    """[L, H]: −Σ A ln A of each row, 0·ln 0 = 0, mean over the rows from I_MIN on."""
    maps = torch.stack([attention[0] for attention in attentions])
    rows = -torch.xlogy(maps, maps).sum(-1)
    return rows[:, :, I_MIN:].mean(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, metavar="DIR")
    args = parser.parse_args()
    torch.set_num_threads(2)
    torch.nn.functional.softmax = softmax_in_fp64
    modeling_llama.LlamaRMSNorm.forward = norm_in_fp64
    modeling_llama.LlamaRotaryEmbedding.forward = rope_of_fp32_angles
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float64, attn_implementation="eager").eval()
    model.requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    sequences = [tokenizer(text, add_special_tokens=False).input_ids for text in TEXTS]
    gates = Gates(model)

    entropies, importances = [], []
    for ids in sequences:
        tokens = torch.tensor([ids])
        out = model(tokens, output_attentions=True, use_cache=False)
        entropies.append(entropy([attention.detach() for attention in out.attentions]))
        loss = torch.nn.functional.cross_entropy(out.logits[0, :-1], tokens[0, 1:])
        gradients = torch.autograd.grad(loss, gates.values)
        importances.append(torch.stack(gradients).abs())  # the absolute value a sample

    source = {"script": Path(__file__).name, "weights_sha256": sha256(args.model / "model.safetensors")}
    fields = {"source": source, "i_min": I_MIN, "sequences": sequences}
    tables = {"entropy": sum(entropies) / len(sequences), "importance": sum(importances) / len(sequences)}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in fields.items()]
    for key, table in tables.items():
        rows = ",\n  ".join(json.dumps([float(f"{value:.12g}") for value in row]) for row in table.tolist())
        lines.append(f"{json.dumps(key)}: [\n  {rows}]")
    (HERE / "heads.json").write_text("{" + ",\n ".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
