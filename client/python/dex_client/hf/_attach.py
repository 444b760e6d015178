"""An adapter beside the weights of a transformers model: hooks, and swapped W_K, W_V, W_O."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import torch

from .._errors import DexError
from ._artefact import KVO, LINEARS, Artefact, fail, read, weights_sha256
from ._branch import Branch
from ._means import Means
from ._site import adapter_parts, decoder_of, heads_of, linear_of, require_fits

_HANDLE = "_dex_handle"
_CACHES = ("cache", "past_key_values")  # what newer and older transformers call an attention's argument


class Handle:
    """An attached adapter. `scale` multiplies every layer's λ (0: without the branch), as dex_lambda_scale of a request;
    detach() takes everything back, bit for bit, and so does leaving a `with`. Not thread-safe."""

    def __init__(self, model: Any, artefact: Artefact, scale: float) -> None:
        self.model, self.artefact = model, artefact
        self.branches: dict[int, Branch] = {}
        self.low_rank: dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor, float]] = {}
        self._hooks: list[Any] = []
        self._swapped: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._attached = True
        self.scale = scale

    @property
    def scale(self) -> float:
        return self._scale

    @scale.setter
    def scale(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise DexError(f"scale must be between 0 and 1, got {value!r}", reason="VALUE_OUT_OF_RANGE", category="USER",
                           param="scale")
        if value != 1 and not self.artefact.has_branch:
            raise DexError(f"scale has no effect: {self.artefact.folder} has no branch", reason="UNUSED_FIELD", category="USER",
                           param="scale")
        self._scale = float(value)

    def detach(self) -> Any:
        """The model as it was before attach(); returns it."""
        if not self._attached:
            raise DexError("this adapter is attached no more: it was detached, or folded into the weights", category="USER")
        self.remove_hooks()
        for parameter, before in self._swapped:
            parameter.data = before
        self._swapped.clear()
        return self.model

    def remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._attached = False
        delattr(self.model, _HANDLE)

    def keep(self, hook: Any) -> None:
        self._hooks.append(hook)

    def swap(self, parameter: torch.nn.Parameter, value: torch.Tensor) -> None:
        self._swapped.append((parameter, parameter.data))
        parameter.data = value.to(parameter.device, parameter.dtype)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        if self._attached:
            self.detach()


def handle_of(model: Any) -> Handle:
    handle = getattr(model, _HANDLE, None)
    if handle is None:
        raise DexError("the model has no adapter attached; dex_client.hf.attach(model, folder) first", category="USER")
    return handle


def attach(model: Any, adapter_dir: Any, scale: float = 1.0, *, base_dir: Any = None, check_base: bool = True) -> Handle:
    """Puts the adapter in `adapter_dir` (client.adapters.download) beside the model's weights, in place.

    Every hash, key, shape and value is checked before anything changes; that the model is the adapter's base, by the hash of
    its weight files in `base_dir`, by default the folder that it was loaded from. check_base=False leaves that out. Raises
    DexError ADAPTER_MISMATCH or ARTIFACT_CORRUPT."""
    if getattr(model, _HANDLE, None) is not None:
        raise DexError("the model has an adapter attached already; handle.detach() first", category="USER")
    artefact = read(adapter_dir)
    if check_base:
        _require_base(artefact, model, base_dir)
    decoder = decoder_of(model)
    require_fits(artefact, model, decoder.layers)
    handle = Handle(model, artefact, scale)
    setattr(model, _HANDLE, handle)
    means = Means() if artefact.keeps_state else None
    try:
        if means is not None:
            handle.keep(decoder.register_forward_pre_hook(_starter(means), with_kwargs=True))
        for number, layer in enumerate(decoder.layers):
            _attach_layer(handle, means, number, layer)
    except BaseException:  # no memory, say: half an adapter must not stay
        handle.detach()
        raise
    return handle


def _require_base(artefact: Artefact, model: Any, base_dir: Any) -> None:
    expected = artefact.provenance.get("base_weights_sha256")
    if not expected:  # PEFT's own folder names no base; shapes say whether it fits
        return
    folder = pathlib.Path(base_dir or getattr(model.config, "_name_or_path", "") or "?")
    if not folder.is_dir():
        raise fail(f"can't tell whether this model is the adapter's base: {folder} is no folder; name the base model's with "
                   "base_dir=, or leave the check out with check_base=False")
    found = weights_sha256(folder)
    if found != expected:
        raise fail(f"{artefact.folder} was made for another base ({artefact.config.get('base_model_name_or_path')}): its weights "
                   f"have SHA-256 {expected}, those in {folder} {found}")


def _starter(means: Means) -> Any:
    def start(module: Any, args: Any, kwargs: Any) -> None:
        means.begin(kwargs.get("attention_mask"), kwargs.get("position_ids"))
    return start


def _attach_layer(handle: Handle, means: Means | None, number: int, layer: Any) -> None:
    artefact, own = handle.artefact, handle.artefact.of_layer(number)
    for name in KVO:
        for part in ("weight", "bias"):
            value = own.get(f"self_attn.{name}.{part}")
            if value is not None:
                handle.swap(getattr(linear_of(layer, name), part), value)
    _attach_lora(handle, number, layer, own)
    device = layer.self_attn.o_proj.weight.device
    if number < artefact.config.get("first_layer", 0):
        return
    if artefact.has_branch:
        prefix = "self_attn.dex."
        tensors = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}
        branch = Branch.of(artefact.config, number, heads_of(layer)[0], tensors).to(device)
        handle.branches[number] = branch
        if branch.acts:
            _attach_branch(handle, means, number, layer, branch)
    for part in adapter_parts(artefact.config) if artefact.train == "adapter" else ():
        linear = layer.self_attn.o_proj if part == "self_attn" else layer.mlp.down_proj
        tensors = {key: own[f"{part}.adapter.{key}"].to(device) for key in ("down.weight", "down.bias", "up.weight", "up.bias")}
        handle.keep(linear.register_forward_hook(_bottleneck(tensors, artefact.config["adapter"]["activation"])))


def _attach_lora(handle: Handle, number: int, layer: Any, own: dict[str, torch.Tensor]) -> None:
    lora = handle.artefact.lora
    for name in lora.get("target_modules", ()):
        a, b = (own.get(f"{LINEARS[name]}.{name}.lora_{factor}.weight") for factor in "AB")
        if a is None or b is None:  # a layer that LoRA leaves out
            continue
        linear = linear_of(layer, name)
        factor = lora["alpha"] / (math.sqrt(lora["r"]) if lora["use_rslora"] else lora["r"])
        a, b = (tensor.to(linear.weight.device, torch.float32) for tensor in (a, b))
        handle.low_rank[number, name] = a, b, factor
        handle.keep(linear.register_forward_hook(_low_rank(a, b, factor)))


def _low_rank(a: torch.Tensor, b: torch.Tensor, factor: float) -> Any:
    def add(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        # On o_proj the argument is what the branch has made of O: LoRA's term comes after it.
        return (output.float() + factor * (args[0].float() @ a.T @ b.T)).to(output.dtype)
    return add


def _bottleneck(tensors: dict[str, torch.Tensor], activation: str) -> Any:
    act = torch.nn.functional.relu if activation == "relu" else torch.nn.functional.gelu

    def add(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        h = output.float()
        inner = act(torch.nn.functional.linear(h, tensors["down.weight"], tensors["down.bias"]))
        return (h + torch.nn.functional.linear(inner, tensors["up.weight"], tensors["up.bias"])).to(output.dtype)
    return add


def _attach_branch(handle: Handle, means: Means | None, number: int, layer: Any, branch: Branch) -> None:
    heads, kv_heads, width = heads_of(layer)
    values: list[torch.Tensor] = []

    def enter(module: Any, args: Any, kwargs: Any) -> None:
        assert means is not None
        means.enter(number, next((kwargs[name] for name in _CACHES if kwargs.get(name) is not None), None))

    def take_values(module: Any, args: Any, output: torch.Tensor) -> None:
        values[:] = [output.unflatten(-1, (kv_heads, width))]

    def change(module: Any, args: Any) -> Any:
        o = args[0].unflatten(-1, (heads, width))
        mean = None
        if means is not None:  # also at scale 0: the tokens that come later need it
            if branch.form == "uniform_map":
                mean = means.mean(number, values.pop()).repeat_interleave(heads // kv_heads, 2)
            else:
                mean = means.mean(number, o)
        if handle.scale == 0:
            return None
        return (branch.apply(o, mean, handle.scale).flatten(-2),)

    if means is not None:
        handle.keep(layer.self_attn.register_forward_pre_hook(enter, with_kwargs=True))
        if branch.form == "uniform_map":
            handle.keep(layer.self_attn.v_proj.register_forward_hook(take_values))
    handle.keep(layer.self_attn.o_proj.register_forward_pre_hook(change))
