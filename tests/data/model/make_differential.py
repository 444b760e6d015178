#!/usr/bin/env python3
"""Makes differential.safetensors: one layer of V1 and of V2 differential attention (method.md §8), computed in fp64 from
the papers' formulas with every map written out, in the layout of microsoft/unilm.

    .deps/peers/bin/python tests/data/model/make_differential.py

For CASE in v1 (4 heads on 4 key heads), v1_gqa (6 on 2):
    CASE.x [T, D] · .q .k .v .o · .gain [2d] · .lambda_q1 … .lambda_k2 [d] · .lambda [] · .cos .sin [T, d/2]
    CASE.y        pairs of heads 2i, 2i + 1 on key heads 2j, 2j + 1 (unilm's flash files; the reference)
    CASE.naive    what unilm's naive file computes: the 2k key heads repeated one by one
and as metadata `cases`: heads h, key heads k, layer (for λ_init) of each.
v2: .x .q .k .v .o · .w_lambda [h, D] · .cos .sin, .y: 6 heads on 2 key heads.
second_v1: method diff's V1 (method.md §8.4), 6 heads on 2 key heads: .x .q [2h·d, D] .k [2k·d, D], pairs of heads 2i,
    2i + 1 and 2j, 2j + 1 with numbers of their own · .v [k·d, D] .o · .share [] · .cos .sin, .y.
Numbers are U(−1, 1)·scale of a seeded generator.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parent / "differential.safetensors"
T, D, WIDTH, EPS = 9, 20, 6, 1e-5
CASES = {"v1": (4, 4, 2), "v1_gqa": (6, 2, 3)}
generator = torch.Generator().manual_seed(8)


def numbers(*shape, scale=0.5):
    return (2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1) * scale


def angles():
    frequencies = 10000.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    turned = torch.arange(T, dtype=torch.float64)[:, None] * frequencies
    return turned.cos(), turned.sin()


def turn_neighbours(x, cos, sin):
    """RoPE on channels (2c, 2c + 1) of x [T, heads, d]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def turn_halves(x, cos, sin):
    """RoPE on channels (c, c + d/2)."""
    low, high = x[..., :WIDTH // 2], x[..., WIDTH // 2:]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def attention_map(q, k):
    scores = q @ k.T / math.sqrt(WIDTH)
    return scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).softmax(-1)


def v1(case, heads, kv_heads, layer):
    g = {"x": numbers(T, D, scale=1.0), "q": numbers(2 * heads * WIDTH, D), "k": numbers(2 * kv_heads * WIDTH, D),
         "v": numbers(kv_heads * 2 * WIDTH, D), "o": numbers(D, heads * 2 * WIDTH), "gain": 1 + numbers(2 * WIDTH)}
    for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
        g[name] = numbers(WIDTH, scale=0.3)
    g["cos"], g["sin"] = angles()
    lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
    g["lambda"] = ((g["lambda_q1"] @ g["lambda_k1"]).exp() - (g["lambda_q2"] @ g["lambda_k2"]).exp() + lambda_init)
    q = turn_neighbours((g["x"] @ g["q"].T).view(T, 2 * heads, WIDTH), g["cos"], g["sin"])
    k = turn_neighbours((g["x"] @ g["k"].T).view(T, 2 * kv_heads, WIDTH), g["cos"], g["sin"])
    v = (g["x"] @ g["v"].T).view(T, kv_heads, 2 * WIDTH)
    group = heads // kv_heads

    def layer_output(key_of):
        outputs = []
        for head in range(heads):
            first, second = (attention_map(q[:, 2 * head + p], k[:, key_of(head, p)]) for p in (0, 1))
            o = (first - g["lambda"] * second) @ v[:, head // group]
            o = o / (o.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * g["gain"]
            outputs.append((1 - lambda_init) * o)
        return torch.cat(outputs, dim=-1) @ g["o"].T

    g["y"] = layer_output(lambda head, p: 2 * (head // group) + p)
    g["naive"] = layer_output(lambda head, p: (2 * head + p) // group)
    return {f"{case}.{name}": value.contiguous() for name, value in g.items()}


def v2(heads, kv_heads):
    g = {"x": numbers(T, D, scale=1.0), "q": numbers(2 * heads * WIDTH, D), "k": numbers(kv_heads * WIDTH, D),
         "v": numbers(kv_heads * WIDTH, D), "o": numbers(D, heads * WIDTH), "w_lambda": numbers(heads, D)}
    g["cos"], g["sin"] = angles()
    q = turn_halves((g["x"] @ g["q"].T).view(T, 2 * heads, WIDTH), g["cos"], g["sin"])
    k = turn_halves((g["x"] @ g["k"].T).view(T, kv_heads, WIDTH), g["cos"], g["sin"])
    v = (g["x"] @ g["v"].T).view(T, kv_heads, WIDTH)
    share = 1 / (1 + (-(g["x"] @ g["w_lambda"].T)).exp())
    outputs = []
    for head in range(heads):
        j = head // (heads // kv_heads)
        first, second = (attention_map(q[:, 2 * head + p], k[:, j]) for p in (0, 1))
        outputs.append(first @ v[:, j] - share[:, head, None] * (second @ v[:, j]))
    g["y"] = torch.cat(outputs, dim=-1) @ g["o"].T
    return {f"v2.{name}": value.contiguous() for name, value in g.items()}


def second_map_v1(heads, kv_heads):
    g = {"x": numbers(T, D, scale=1.0), "q": numbers(2 * heads * WIDTH, D), "k": numbers(2 * kv_heads * WIDTH, D),
         "v": numbers(kv_heads * WIDTH, D), "o": numbers(D, heads * WIDTH), "share": torch.tensor(0.45).double()}
    g["cos"], g["sin"] = angles()
    q = turn_halves((g["x"] @ g["q"].T).view(T, 2 * heads, WIDTH), g["cos"], g["sin"])
    k = turn_halves((g["x"] @ g["k"].T).view(T, 2 * kv_heads, WIDTH), g["cos"], g["sin"])
    v = (g["x"] @ g["v"].T).view(T, kv_heads, WIDTH)
    outputs = []
    for head in range(heads):
        j = head // (heads // kv_heads)
        first, second = (attention_map(q[:, 2 * head + p], k[:, 2 * j + p]) for p in (0, 1))
        outputs.append((first - g["share"] * second) @ v[:, j])
    g["y"] = torch.cat(outputs, dim=-1) @ g["o"].T
    return {f"second_v1.{name}": value.contiguous() for name, value in g.items()}


def main():
    tensors = v2(6, 2)
    for case, shape in CASES.items():
        tensors |= v1(case, *shape)
    tensors |= second_map_v1(6, 2)
    save_file(tensors, OUT, {"cases": json.dumps(CASES)})


if __name__ == "__main__":
    main()
