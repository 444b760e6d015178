"""The difference branch of one layer (method.md §3.1, §3.2), written out in simple ops:

    O'_h = O_h + s·λ·m_h·D_h        D = P(O) · P(O) − g·mean over heads · P(O) − g·Ō · g·V̄
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

_ACTIVATIONS = {"none": lambda x: x, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}


@dataclasses.dataclass
class Branch:
    """heads H of width d; tensors fp32. strength [H]: s·λ·m_h. form, projection, scope and activation by method.md's names.
    w_d [d, d], [H, d, d] or [H·d, H·d]; or w_down, w_up of a bottleneck; gate [H]."""

    form: str
    heads: int
    strength: torch.Tensor
    w_d: torch.Tensor | None = None
    w_down: torch.Tensor | None = None
    w_up: torch.Tensor | None = None
    gate: torch.Tensor | None = None
    activation: str = "none"

    @classmethod
    def of(cls, config: dict[str, Any], layer: int, heads: int, tensors: dict[str, torch.Tensor]) -> Branch:
        """From adapter_config.json and the layer's tensors by their keys below self_attn.dex.; λ is the config's effective
        one, `lambda_learn` has gone into it."""
        mask = torch.full([heads], float(config.get("soft_floor", 0)) if layer >= config.get("first_layer", 0) else 0.0)
        mask[config["selected_heads"][layer]] = 1
        sign = -1.0 if config["sign"] == "minus" else 1.0
        own = {key: tensor.float() for key, tensor in tensors.items() if key != "lambda_learn"}
        return cls(config["form"], heads, mask * (sign * config["lambda"][layer]),
                   activation=config.get("bottleneck_activation", "none"), **own)

    @property
    def acts(self) -> bool:
        return bool(self.strength.any())

    def to(self, device: torch.device) -> Branch:
        moved = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Branch(**{name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in moved.items()})

    def map(self) -> torch.Tensor:
        """The matrix of a linear projection, in a shape of w_d."""
        if self.w_d is not None:
            return self.w_d
        assert self.w_down is not None and self.w_up is not None and self.activation == "none"
        return self.w_down @ self.w_up

    def projected(self, o: torch.Tensor) -> torch.Tensor:
        """P(O) of o [..., H, d]."""
        steps = [self.w_d] if self.w_d is not None else [self.w_down, self.w_up]
        first = steps[0]
        assert first is not None
        if first.dim() == 3:  # a map a head
            x = torch.einsum("...hd,hde->...he", o, first)
        else:
            wide = first.shape[0] != o.shape[-1]
            x = (o.flatten(-2) if wide else o) @ first
        if len(steps) == 2:
            second = steps[1]
            assert second is not None
            x = _ACTIVATIONS[self.activation](x)
            x = torch.einsum("...hd,hde->...he", x, second) if second.dim() == 3 else x @ second
        return x.unflatten(-1, (self.heads, -1)) if x.shape != o.shape else x

    def difference(self, o: torch.Tensor, mean: torch.Tensor | None = None) -> torch.Tensor:
        """D of o [..., H, d] in fp32. `mean` is the running mean that prefix_mean (of O, [..., H, d]) and uniform_map (of V
        under each query head, [..., H, d]) read."""
        if self.form == "uniform_map":
            assert self.gate is not None and mean is not None
            return self.gate[:, None] * mean
        p = self.projected(o)
        if self.form == "paper":
            return p
        assert self.gate is not None
        if self.form == "head_mean":
            mean = o.mean(-2, keepdim=True)
        assert mean is not None
        return p - self.gate[:, None] * mean

    def apply(self, o: torch.Tensor, mean: torch.Tensor | None = None, scale: float = 1.0) -> torch.Tensor:
        """O' of o [..., H, d], computed in fp32 (fp64 if o is) and rounded once to o's type."""
        wide = o if o.dtype == torch.float64 else o.float()
        strength = (self.strength * scale)[:, None].to(wide.dtype)
        return (wide + strength * self.difference(wide, mean)).to(o.dtype)

    def folded(self, w_o: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """W_O [D, H·d] with the branch inside, W_O·Mᵀ: M is what unit inputs become (method.md §2.4, §3.1). fp32 or fp64."""
        width = w_o.shape[1]
        unit = torch.eye(width, dtype=w_o.dtype, device=w_o.device).view(width, self.heads, -1)
        as_wide = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        wide = Branch(**{name: value.to(w_o.dtype) if isinstance(value, torch.Tensor) else value
                         for name, value in as_wide.items()})
        return w_o @ wide.apply(unit, scale=scale).flatten(-2).T
