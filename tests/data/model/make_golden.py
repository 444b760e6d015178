#!/usr/bin/env python3
"""Makes the golden values of tests/unit/worker/model with transformers: two tiny random Llamas, what they compute, and
what they compute with a DEX branch hooked in before o_proj (written here from method.md, independent of our code).

    .deps/peers/bin/python tests/data/model/make_golden.py

Each folder holds config.json, model.safetensors and golden.safetensors:
    tokens, bounds      two documents, packed
    logits              of each document alone, one below the other
    loss, grad.NAME     mean next-token cross-entropy over both, its gradient by k, v, o (weights and biases)
    paper.*, head_mean.*  the same with a branch: w_d (and gate), heads, lambda as inputs; logits and gradients
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent
DOCUMENTS = [[5, 17, 3, 90, 41, 8, 8], [60, 2, 33, 71, 12]]
MODELS = {
    "tied": dict(num_key_value_heads=2, head_dim=8, tie_word_embeddings=True, attention_bias=False, mlp_bias=False),
    "biased": dict(num_key_value_heads=4, head_dim=6, tie_word_embeddings=False, attention_bias=True, mlp_bias=True),
}


def build(options):
    config = LlamaConfig(vocab_size=97, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
                         max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, **options)
    config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
    model = LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.uniform_(0.7, 1.3)
        else:
            parameter.data.normal_(0, 0.3 if parameter.dim() == 1 else 0.25)
    return model


class Branch(torch.nn.Module):
    """O_h + sign·λ·m_h·(O_h·w_d[h] − g_h·mean of all heads), method.md §3.1."""

    def __init__(self, heads, width, form, chosen):
        super().__init__()
        shape = (width, width) if form == "paper" else (heads, width, width)
        self.w_d = torch.nn.Parameter(torch.randn(shape) * 0.3)
        self.gate = torch.nn.Parameter(torch.randn(heads) * 0.3) if form == "head_mean" else None
        self.strength = torch.nn.Parameter(torch.tensor(0.37))
        self.sign = -1.0 if form == "paper" else 1.0
        self.mask = torch.zeros(heads)
        self.mask[chosen] = 1

    def forward(self, o_proj, inputs):
        o = inputs[0].unflatten(-1, (self.mask.numel(), -1))
        difference = torch.einsum("nthi,ij->nthj" if self.w_d.dim() == 2 else "nthi,hij->nthj", o, self.w_d)
        if self.gate is not None:
            difference = difference - self.gate[:, None] * o.mean(-2, keepdim=True)
        return (o + self.sign * self.strength * self.mask[:, None] * difference).flatten(-2)


def run(model):
    logits = [model(input_ids=torch.tensor([document])).logits[0] for document in DOCUMENTS]
    losses = [torch.nn.functional.cross_entropy(x[:-1], torch.tensor(d[1:]), reduction="sum")
              for x, d in zip(logits, DOCUMENTS)]
    loss = sum(losses) / sum(len(d) - 1 for d in DOCUMENTS)
    model.zero_grad()
    loss.backward()
    return torch.cat(logits).detach(), loss.detach()


def trained_gradients(model, prefix):
    return {f"{prefix}grad.{name}": parameter.grad.clone() for name, parameter in model.named_parameters()
            if any(part in name for part in ("k_proj", "v_proj", "o_proj")) and parameter.grad is not None}


def main():
    for folder, options in MODELS.items():
        torch.manual_seed(7)
        model = build(options)
        out = HERE / folder
        model.save_pretrained(out)
        (out / "generation_config.json").unlink(missing_ok=True)
        golden = {"tokens": torch.tensor(sum(DOCUMENTS, [])), "bounds": torch.tensor([0, 7, 12])}
        golden["logits"], golden["loss"] = run(model)
        golden |= trained_gradients(model, "")
        for form in ("paper", "head_mean"):
            branches, hooks = [], []
            for index, layer in enumerate(model.model.layers):
                chosen = [[1, 3], [0], [0, 1, 2, 3]][index]
                branch = Branch(4, options["head_dim"], form, chosen)
                branches.append(branch)
                hooks.append(layer.self_attn.o_proj.register_forward_pre_hook(branch))
            golden[f"{form}.logits"], golden[f"{form}.loss"] = run(model)
            golden |= trained_gradients(model, f"{form}.")
            for index, branch in enumerate(branches):
                for key in ("w_d", "gate", "strength"):
                    value = getattr(branch, key)
                    if value is not None:
                        golden[f"{form}.{index}.{key}"] = value.detach()
                        golden[f"{form}.{index}.grad.{key}"] = value.grad
                golden[f"{form}.{index}.mask"] = branch.mask
            for hook in hooks:
                hook.remove()
        save_file({name: value.contiguous() for name, value in golden.items()}, out / "golden.safetensors")


if __name__ == "__main__":
    main()
