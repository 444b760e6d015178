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
    loss, grad.NAME        without a branch, and its gradient by every parameter
    lora.loss, lora.grad.NAME         with PEFT's LoRA beside all seven linears, and its gradient by both factors
    adapter.loss, adapter.grad.NAME   with bottleneck adapters (method.md §7) hooked in behind o_proj and down_proj
and as metadata `names`: every tensor's name and shape, sorted by name, and `parameters`. Families that can't have a
branch (DIFFERENTIAL) lack entropy and the values of one.

Weights are not stored, both sides make them. Number j of the tensor at place i in `names` is c + s·(2·u − 1) in double,
rounded to float, with u = random_unit(21, i, j) of worker/kernels/philox.h; c = 1, s = 0.3 for norms, 0 and 0.3 for
everything else (vectors of λ too), 0 and 1 for the embedding. w_d of layer l: i = 1000 + l, c = 0, s = 0.4; λ = 0.37.
Tensors of LoRA (r 2, α 3) and of adapters (size 3, relu): i = 4000 + place in their names, sorted; c = 0, s = 0.4. Their
NAME is that of the artefact: PEFT's without its prefix, "model.layers.0.mlp.adapter.up.bias".
"""

import json
from pathlib import Path

import numpy as np
import peft
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DiffLlamaConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

OUT = Path(__file__).resolve().parent / "families"
SEED, W_D_PLACE, ADDED_PLACE, STRENGTH = 21, 1000, 4000, 0.37
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
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


class Adapter(torch.nn.Module):
    """h + up(relu(down(h))) in place of a linear's output h."""

    def __init__(self, hidden, size=3):
        super().__init__()
        self.down, self.up = torch.nn.Linear(hidden, size), torch.nn.Linear(size, hidden)

    def forward(self, linear, inputs, h):
        return h + self.up(torch.relu(self.down(h)))


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


def branch_values(model, documents):
    config, golden = model.config, {}
    _, _, golden["entropy"] = run(model, documents)
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
    return golden


def full_values(model, documents):
    golden = {}
    golden["logits"], golden["loss"], _ = run(model, documents)
    golden["loss"].backward()
    return golden | {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}


def added_values(method, model, documents, added):
    """`added`: what the method trains, by name of the artefact; gets its numbers here."""
    with torch.no_grad():
        for place, name in enumerate(sorted(added)):
            added[name].copy_(numbers(ADDED_PLACE + place, added[name].shape, 0.0, 0.4))
    _, loss, _ = run(model, documents)
    loss.backward()
    return {f"{method}.loss": loss} | {f"{method}.grad.{name}": tensor.grad for name, tensor in added.items()}


def lora_values(model, documents):
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=3,
                                                         target_modules=LINEARS)).eval()
    added = {name.removeprefix("base_model.model.").replace(".default.", "."): parameter
             for name, parameter in adapted.named_parameters() if "lora_" in name}
    return added_values("lora", adapted, documents, added)


def adapter_values(model, documents):
    added = {}
    for layer, block in enumerate(model.model.layers):
        for part, linear in (("self_attn", block.self_attn.o_proj), ("mlp", block.mlp.down_proj)):
            adapter = Adapter(model.config.hidden_size)
            linear.register_forward_hook(adapter)
            added |= {f"model.layers.{layer}.{part}.adapter.{name}": parameter
                      for name, parameter in adapter.named_parameters()}
    return added_values("adapter", model, documents, added)


def golden_values(config):
    """Each part from a model of its own, since each changes it."""
    documents, golden = random_documents(config)
    parts = [full_values, lora_values, adapter_values] + [branch_values] * (not isinstance(config, DiffLlamaConfig))
    for part in parts:
        golden |= part(build(config)[0], documents)
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
        save_file(golden_values(config), folder / "golden.safetensors",
                  {"names": json.dumps(names), "parameters": str(parameters)})


if __name__ == "__main__":
    main()
