"""Where an adapter acts in a transformers model: its decoder layers, and what each stored tensor must look like there."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._artefact import KVO, LINEARS, Artefact, fail, stored_dtype

Expected = dict[str, tuple[list[int], torch.dtype | None]]  # dtype None: any float


def decoder_of(model: Any) -> Any:
    """The module with the decoder's layers, of a causal model or itself."""
    decoder = getattr(model, "model", model)
    if not hasattr(decoder, "layers") or not hasattr(decoder.layers[0], "self_attn"):
        raise fail(f"{type(model).__name__} has no model.layers[i].self_attn; adapters are for Llama-like models")
    return decoder


def heads_of(layer: Any) -> tuple[int, int, int]:
    """(query heads H, key/value heads K, width d) of a layer."""
    attention = layer.self_attn
    width = int(attention.head_dim)
    return attention.o_proj.in_features // width, attention.v_proj.out_features // width, width


def linear_of(layer: Any, name: str) -> Any:
    return getattr(getattr(layer, LINEARS[name]), name)


def _branch_shapes(config: dict[str, Any], heads: int, width: int) -> dict[str, list[int]]:
    shapes: dict[str, list[int]] = {}
    projection = config.get("projection")
    if projection in ("shared", "per_head", "dense"):
        many = [heads] if projection == "per_head" else []
        wide = heads * width if projection == "dense" else width
        shapes["w_d"] = [*many, wide, wide]
    elif projection == "bottleneck":
        scope = config["bottleneck_scope"]
        many = [heads] if scope == "per_head" else []
        wide = heads * width if scope == "dense" else width
        inner = max(1, math.floor(config["width_ratio"] * wide + 0.5))
        shapes |= {"w_down": [*many, wide, inner], "w_up": [*many, inner, wide]}
    if config["form"] != "paper":
        shapes["gate"] = [heads]
    if config["lambda_schedule"]["schedule"] in ("paper_eq4", "learned"):
        shapes["lambda_learn"] = [1]
    return shapes


def expected(artefact: Artefact, layers: Any) -> Expected:
    """Every tensor that the artefact must hold for a model of these layers."""
    found: Expected = {}
    config, dtype = artefact.config, stored_dtype(artefact.config)
    lora, transformed = artefact.lora, config.get("layers_to_transform")
    for number, layer in enumerate(layers):
        if number < config.get("first_layer", 0):
            continue
        place = f"model.layers.{number}."
        if artefact.train in ("kvo+dex", "kvo_only"):
            for name in KVO:
                linear = linear_of(layer, name)
                found[f"{place}self_attn.{name}.weight"] = list(linear.weight.shape), dtype
                if linear.bias is not None:
                    found[f"{place}self_attn.{name}.bias"] = list(linear.bias.shape), dtype
        if artefact.has_branch:
            heads, _, width = heads_of(layer)
            for key, shape in _branch_shapes(config, heads, width).items():
                scalar = key in ("gate", "lambda_learn")
                found[f"{place}self_attn.dex.{key}"] = shape, torch.float32 if scalar else dtype
        if lora and (transformed is None or number in transformed):
            of_peft = config["peft_type"] == "LORA"
            for name in lora["target_modules"]:
                if name not in LINEARS:
                    raise fail(f"{artefact.folder}/adapter_config.json: target module {name!r} is none of {', '.join(LINEARS)}")
                linear = linear_of(layer, name)
                key = f"{place}{LINEARS[name]}.{name}.lora_"
                found[f"{key}A.weight"] = [lora["r"], linear.in_features], None if of_peft else torch.float32
                found[f"{key}B.weight"] = [linear.out_features, lora["r"]], None if of_peft else torch.float32
        if artefact.train == "adapter":
            size, hidden = config["adapter"]["size"], layer.self_attn.o_proj.out_features
            for part in adapter_parts(config):
                shapes = {"down.weight": [size, hidden], "down.bias": [size], "up.weight": [hidden, size], "up.bias": [hidden]}
                found |= {f"{place}{part}.adapter.{key}": (shape, torch.float32) for key, shape in shapes.items()}
    return found


def adapter_parts(config: dict[str, Any]) -> list[str]:
    placement = config["adapter"]["placement"]
    return [part for part, elsewhere in (("self_attn", "mlp"), ("mlp", "attention")) if placement != elsewhere]


def require_fits(artefact: Artefact, model: Any, layers: Any) -> None:
    """Raises DexError ADAPTER_MISMATCH naming the first tensor or key that does not fit the model."""
    config, where = artefact.config, f"{artefact.folder}/adapter_model.safetensors"
    if artefact.has_branch:
        if getattr(model.config, "model_type", "") == "diffllama":
            raise fail("a model that subtracts attention maps by itself (diffllama) takes no branch")
        for key in ("selected_heads", "lambda"):
            if len(config[key]) != len(layers):
                raise fail(f"{artefact.folder}/adapter_config.json: {key} has {len(config[key])} layers, the model {len(layers)}")
        heads = heads_of(layers[0])[0]
        for number, chosen in enumerate(config["selected_heads"]):
            if any(not 0 <= head < heads for head in chosen):
                raise fail(f"{artefact.folder}/adapter_config.json: selected_heads of layer {number} must be 0 to {heads - 1}, "
                           f"got {chosen}")
    wanted = expected(artefact, layers)
    for key, (shape, dtype) in wanted.items():
        stored = artefact.tensors.get(key)
        if stored is None:
            raise fail(f"{where}: expected tensor {key}, found none")
        if list(stored.shape) != shape or (dtype is not None and stored.dtype != dtype):
            raise fail(f"{where}: tensor {key} must be {shape} {dtype or 'float'}, got {list(stored.shape)} {stored.dtype}")
    extra = sorted(set(artefact.tensors) - set(wanted))
    if extra:
        raise fail(f"{where}: tensor {extra[0]} belongs to nothing that adapter_config.json says")
