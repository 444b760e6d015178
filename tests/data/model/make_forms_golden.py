#!/usr/bin/env python3
"""Makes tied/forms.safetensors: what the tiny Llama of this folder computes with a branch of each form and projection that
make_golden.py does not have. Llama and branch are written here in numpy, fp64, from the definition and method.md 3.1 and
3.2, independent of our code; the Llama must first give transformers' own logits of golden.safetensors.

    .deps/setup-venv/bin/python tests/data/model/make_forms_golden.py      # after make_golden.py

Of every case: NAME.logits of each document alone, one below the other; NAME.I.KEY the branch's tensors of layer I and
NAME.I.mask; and NAME.slope.KEY: how the sum of logits * coefficients changes when KEY of every layer I moves along
NAME.I.direction.KEY, by central differences. KEY is also v_proj and o_proj, the weights, along I.direction.KEY.
"""

import math
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

FOLDER = Path(__file__).resolve().parent / "tied"
LAYERS, HEADS, KV_HEADS, WIDTH, EPS, THETA = 3, 4, 2, 8, 1e-5, 10000.0
ALL, STEP = HEADS * WIDTH, 1e-5
CHOSEN = [[1, 3], [0], [0, 1, 2, 3]]
# form, sign, shapes of the tensors, activation
CASES = {
    "prefix_mean_per_head": ("prefix_mean", 1, {"w_d": (HEADS, WIDTH, WIDTH), "gate": (HEADS,)}, None),
    "prefix_mean_dense_gelu": ("prefix_mean", 1, {"w_down": (ALL, 12), "w_up": (12, ALL), "gate": (HEADS,)}, "gelu"),
    "uniform_map": ("uniform_map", -1, {"gate": (HEADS,)}, None),
    "paper_dense": ("paper", 1, {"w_d": (ALL, ALL)}, None),
    "head_mean_per_head_silu": ("head_mean", 1, {"w_down": (HEADS, WIDTH, 12), "w_up": (HEADS, 12, WIDTH),
                                                 "gate": (HEADS,)}, "silu"),
    "paper_shared_silu": ("paper", -1, {"w_down": (WIDTH, 4), "w_up": (4, WIDTH)}, "silu"),
}


def silu(x):
    return x / (1 + np.exp(-x))


ACTIVATIONS = {None: lambda x: x, "silu": silu,
               "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))}


def norm(x, weight):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + EPS) * weight


def rope(x):
    """x [T, heads, WIDTH]: the two halves of a head are rotated against each other."""
    half = WIDTH // 2
    angle = np.arange(len(x))[:, None] / THETA ** (np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def so_far(x):
    return np.cumsum(x, 0) / np.arange(1, len(x) + 1).reshape(-1, 1, 1)


def project(o, tensors, activation):
    """P(O) [T, H, d], written head by head."""
    def step(x, key, head):  # x [T, n]
        weight = tensors[key]
        return x @ (weight[head] if weight.ndim == 3 else weight)

    def whole(x, head):
        if "w_d" in tensors:
            return step(x, "w_d", head)
        return step(ACTIVATIONS[activation](step(x, "w_down", head)), "w_up", head)

    first = tensors["w_d" if "w_d" in tensors else "w_down"]
    if first.shape[0] == ALL:  # dense: all heads together
        return whole(o.reshape(len(o), ALL), None).reshape(o.shape)
    return np.stack([whole(o[:, h], h) for h in range(HEADS)], 1)


def difference(case, tensors, o, v):
    form, _, _, activation = case
    if form == "uniform_map":
        mean = so_far(v)[:, [h // (HEADS // KV_HEADS) for h in range(HEADS)]]
        return tensors["gate"][:, None] * mean
    out = project(o, tensors, activation)
    if form == "head_mean":
        out = out - tensors["gate"][:, None] * o.mean(1, keepdims=True)
    if form == "prefix_mean":
        out = out - tensors["gate"][:, None] * so_far(o)
    return out


def attention(w, x, layer, case, branch):
    def heads(name, count):
        return (x @ w[f"model.layers.{layer}.self_attn.{name}.weight"].T).reshape(len(x), count, WIDTH)

    q, k, v = rope(heads("q_proj", HEADS)), rope(heads("k_proj", KV_HEADS)), heads("v_proj", KV_HEADS)
    o = np.empty_like(q)
    for h in range(HEADS):
        scores = q[:, h] @ k[:, h // (HEADS // KV_HEADS)].T / math.sqrt(WIDTH)
        scores[np.triu_indices(len(x), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        o[:, h] = weights / weights.sum(-1, keepdims=True) @ v[:, h // (HEADS // KV_HEADS)]
    if case:
        o = o + case[1] * branch["strength"] * branch["mask"][:, None] * difference(case, branch, o, v)
    return o.reshape(len(x), ALL) @ w[f"model.layers.{layer}.self_attn.o_proj.weight"].T


def logits(w, document, case=None, branches=None):
    x = w["model.embed_tokens.weight"][document]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        branch = branches[layer] if branches else None
        x = x + attention(w, norm(x, w[name + "input_layernorm.weight"]), layer, case, branch)
        inner = norm(x, w[name + "post_attention_layernorm.weight"])
        gate, up = inner @ w[name + "mlp.gate_proj.weight"].T, inner @ w[name + "mlp.up_proj.weight"].T
        x = x + (silu(gate) * up) @ w[name + "mlp.down_proj.weight"].T
    return norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


def slope(w, documents, coefficients, case, branches, key, directions):
    """d/dh of sum(logits * coefficients), every layer's KEY moved by h * direction."""
    def value(h):
        moved_w, moved = dict(w), [dict(branch) for branch in branches]
        for layer, direction in enumerate(directions):
            if key.endswith("_proj"):
                name = f"model.layers.{layer}.self_attn.{key}.weight"
                moved_w[name] = w[name] + h * direction
            else:
                moved[layer][key] = branches[layer][key] + h * direction
        return (np.concatenate([logits(moved_w, d, case, moved) for d in documents]) * coefficients).sum()

    return (value(STEP) - value(-STEP)) / (2 * STEP)


def main():
    random = np.random.default_rng(11)
    # What is stored is fp32, so that is what is computed with.
    draw = lambda shape, scale=1.0: (random.standard_normal(shape) * scale).astype(np.float32).astype(np.float64)
    w = {name: tensor.astype(np.float64) for name, tensor in load_file(FOLDER / "model.safetensors").items()}
    made = load_file(FOLDER / "golden.safetensors")
    bounds = made["bounds"]
    documents = [made["tokens"][a:b] for a, b in zip(bounds[:-1], bounds[1:])]
    off = np.abs(np.concatenate([logits(w, d) for d in documents]) - made["logits"]).max()
    assert off < 2e-5, f"the Llama of this script is {off} away from transformers"

    coefficients = draw(made["logits"].shape)
    golden = {"coefficients": coefficients}
    along = {key: [draw(w[f"model.layers.{i}.self_attn.{key}.weight"].shape) for i in range(LAYERS)]
             for key in ("v_proj", "o_proj")}
    golden |= {f"{i}.direction.{key}": along[key][i] for key in along for i in range(LAYERS)}
    for name, case in CASES.items():
        branches = []
        for chosen in CHOSEN:
            tensors = {key: draw(shape, 0.4) for key, shape in case[2].items()}
            mask = np.zeros(HEADS)
            mask[chosen] = 1
            branches.append(tensors | {"strength": np.float64(np.float32([0.37])), "mask": mask})
        golden[f"{name}.logits"] = np.concatenate([logits(w, d, case, branches) for d in documents])
        for index, branch in enumerate(branches):
            golden |= {f"{name}.{index}.{key}": value for key, value in branch.items()}
        moves = dict(along)
        for key in [*case[2], "strength"]:
            moves[key] = [draw(branch[key].shape) for branch in branches]
            golden |= {f"{name}.{i}.direction.{key}": direction for i, direction in enumerate(moves[key])}
        for key, directions in moves.items():
            golden[f"{name}.slope.{key}"] = np.array([slope(w, documents, coefficients, case, branches, key, directions)])
    save_file({key: np.ascontiguousarray(value, np.float32) for key, value in golden.items()}, FOLDER / "forms.safetensors")


if __name__ == "__main__":
    main()
