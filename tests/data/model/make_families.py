#!/usr/bin/env python3
"""Makes families/: what transformers computes with a small random model of each base-model family (worker/model/families.h).

    .deps/peers/bin/python tests/data/model/make_families.py

families/NAME/ holds config.json as transformers writes it and golden.safetensors:
    tokens, bounds         two documents, packed
    logits, entropy        of each document alone, one below the other: [N, V], and of the attention rows [L, N, H]
    dex.logits, dex.loss   with a branch hooked in before o_proj (method.md §2.1, sign minus); loss: mean next-token
                           cross-entropy over both documents
    dex.grad.NAME          its gradient by the k, v and o projections, weights and biases
    dex.I.grad.w_d, .strength, dex.I.mask   of layer I's branch
Families that can't have a branch (DIFFERENTIAL) have, in place of entropy and the values of a branch,
    loss, grad.NAME        and its gradient by every parameter
and as metadata `names`: every tensor's name and shape, sorted by name, and `parameters`.

Weights are not stored, both sides make them. Number j of the tensor at place i in `names` is c + s·(2·u − 1) in double,
rounded to float, with u = random_unit(21, i, j) of worker/kernels/philox.h; c = 1, s = 0.3 for norms, 0 and 0.3 for
everything else (vectors of λ too), 0 and 1 for the embedding. w_d of layer l: i = 1000 + l, c = 0, s = 0.4; λ = 0.37.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DiffLlamaConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

OUT = Path(__file__).resolve().parent / "families"
SEED, W_D_PLACE, STRENGTH = 21, 1000, 0.37
LENGTHS = (29, 9)
SHARED = dict(vocab_size=71, intermediate_size=36, num_hidden_layers=2, max_position_embeddings=64, rms_norm_eps=1e-5,
              bos_token_id=1, eos_token_id=2)
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
FAMILIES = {
    "llama3": LlamaConfig(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=8, tie_word_embeddings=False,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 32}, **SHARED),
    "llama_linear": LlamaConfig(
        hidden_size=20, num_attention_heads=5, num_key_value_heads=1, head_dim=6, tie_word_embeddings=True,
        attention_bias=True, mlp_bias=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}, **SHARED),
    "mistral": MistralConfig(
        hidden_size=20, num_attention_heads=9, num_key_value_heads=3, head_dim=6, tie_word_embeddings=False,
        sliding_window=None, rope_parameters=PLAIN, **SHARED),
    "mistral_window": MistralConfig(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=10, tie_word_embeddings=True,
        sliding_window=7, rope_parameters=PLAIN, **SHARED),
    "qwen2": Qwen2Config(
        hidden_size=28, num_attention_heads=7, num_key_value_heads=1, tie_word_embeddings=False, rope_parameters=PLAIN,
        **SHARED),
    "qwen3": Qwen3Config(
        hidden_size=20, num_attention_heads=3, num_key_value_heads=1, head_dim=10, tie_word_embeddings=True,
        rope_parameters=PLAIN, **SHARED),
    "qwen3_biased": Qwen3Config(
        hidden_size=20, num_attention_heads=6, num_key_value_heads=2, head_dim=8, tie_word_embeddings=False,
        attention_bias=True, rope_parameters=PLAIN, **SHARED),
}
# Three query heads a key head, so that pairs of heads (i, i + 6) are not pairs of key heads' groups; three layers, since
# λ_init depends on the layer.
DIFFERENTIAL = {
    "diffllama": DiffLlamaConfig(
        hidden_size=24, num_attention_heads=12, num_key_value_heads=4, head_dim=6, tie_word_embeddings=False,
        rope_parameters=PLAIN, **SHARED | {"num_hidden_layers": 3}),
    "diffllama_biased": DiffLlamaConfig(
        hidden_size=20, num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True, attention_bias=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}, **SHARED),
}


def random_unit(seed, stream, count):
    """Numbers 0 … count − 1 of random_unit(seed, stream, ·): Philox4x32-10."""
    mask = np.uint64(0xFFFFFFFF)
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    c = [block & mask, block >> np.uint64(32), np.full_like(block, stream), np.zeros_like(block)]
    key = [np.uint64(seed), np.uint64(0)]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ key[0], p1 & mask, (p0 >> np.uint64(32)) ^ c[3] ^ key[1], p0 & mask]
        key = [(key[0] + np.uint64(0x9E3779B9)) & mask, (key[1] + np.uint64(0xBB67AE85)) & mask]
    return np.stack(c, axis=1).reshape(-1)[:count].astype(np.float64) * 2.0**-32


def numbers(place, shape, centre, scale):
    values = centre + scale * (2 * random_unit(SEED, place, int(np.prod(shape))) - 1)
    return torch.from_numpy(values.astype(np.float32)).view(*shape)


class Branch(torch.nn.Module):
    """O_h − λ·m_h·O_h·w_d of one layer."""

    def __init__(self, layer, heads, width):
        super().__init__()
        self.w_d = torch.nn.Parameter(numbers(W_D_PLACE + layer, (width, width), 0.0, 0.4))
        self.strength = torch.nn.Parameter(torch.tensor(STRENGTH))
        self.mask = torch.tensor([float((head + layer) % 2 == 0) for head in range(heads)])

    def forward(self, o_proj, inputs):
        o = inputs[0].unflatten(-1, (self.mask.numel(), -1))
        return (o - self.strength * self.mask[:, None] * (o @ self.w_d)).flatten(-2)


def build(config):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    state = model.state_dict()
    names = sorted(name for name in state if not (config.tie_word_embeddings and name == "lm_head.weight"))
    for place, name in enumerate(names):
        centre, scale = (1.0, 0.3) if "norm" in name else (0.0, 1.0 if "embed" in name else 0.3)
        state[name].copy_(numbers(place, state[name].shape, centre, scale))
    model.tie_weights()
    return model, [[name, list(state[name].shape)] for name in names]


def random_documents(config):
    tokens = (random_unit(SEED, 2000, sum(LENGTHS)) * config.vocab_size).astype(np.int64).tolist()
    documents = [tokens[:LENGTHS[0]], tokens[LENGTHS[0]:]]
    return documents, {"tokens": torch.tensor(tokens), "bounds": torch.tensor([0, LENGTHS[0], len(tokens)])}


def run(model, documents):
    outputs = [model(input_ids=torch.tensor([document]), output_attentions=True) for document in documents]
    losses = [torch.nn.functional.cross_entropy(out.logits[0, :-1], torch.tensor(document[1:]), reduction="sum")
              for out, document in zip(outputs, documents)]
    loss = sum(losses) / sum(len(document) - 1 for document in documents)
    entropy = [torch.cat([torch.special.entr(out.attentions[layer][0]).sum(-1).T for out in outputs])
               for layer in range(model.config.num_hidden_layers)]
    return torch.cat([out.logits[0] for out in outputs]), loss, torch.stack(entropy)


def golden_values(model, names):
    config = model.config
    documents, golden = random_documents(config)
    golden["logits"], _, golden["entropy"] = run(model, documents)
    branches = []
    for layer, block in enumerate(model.model.layers):
        branches.append(Branch(layer, config.num_attention_heads, block.self_attn.head_dim))
        block.self_attn.o_proj.register_forward_pre_hook(branches[-1])
    golden["dex.logits"], golden["dex.loss"], _ = run(model, documents)
    golden["dex.loss"].backward()
    for name, parameter in model.named_parameters():
        if any(part in name for part in ("k_proj", "v_proj", "o_proj")):
            golden[f"dex.grad.{name}"] = parameter.grad
    for layer, branch in enumerate(branches):
        golden[f"dex.{layer}.mask"] = branch.mask
        for key in ("w_d", "strength"):
            golden[f"dex.{layer}.grad.{key}"] = getattr(branch, key).grad
    return {name: value.detach().contiguous() for name, value in golden.items()}


def differential_values(model, names):
    documents, golden = random_documents(model.config)
    golden["logits"], golden["loss"], _ = run(model, documents)
    golden["loss"].backward()
    for name, parameter in model.named_parameters():
        golden[f"grad.{name}"] = parameter.grad
    return {name: value.detach().contiguous() for name, value in golden.items()}


def main():
    for name, config in (FAMILIES | DIFFERENTIAL).items():
        model, names = build(config)
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        config.architectures = [type(model).__name__]
        config.dtype = "float32"
        config.save_pretrained(folder)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        values = (golden_values if name in FAMILIES else differential_values)(model, names)
        save_file(values, folder / "golden.safetensors",
                  {"names": json.dumps(names), "parameters": str(parameters)})


if __name__ == "__main__":
    main()
