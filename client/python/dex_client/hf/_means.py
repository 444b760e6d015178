"""Running means of form prefix_mean and uniform_map over the tokens of a text so far, also while a cache grows."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .._errors import DexError


class Means:
    """What one attached adapter remembers. Padding is left out; each row is one text, so packed rows are refused. Sums are
    kept by the cache object that a generation goes on with; a cache that this did not see grow is refused too."""

    def __init__(self) -> None:
        self._by_cache: weakref.WeakKeyDictionary[Any, dict[int, tuple[torch.Tensor, torch.Tensor, int]]] = (
            weakref.WeakKeyDictionary())
        self._mask: torch.Tensor | None = None
        self._cache: Any = None
        self._past = 0

    def begin(self, attention_mask: torch.Tensor | None, position_ids: torch.Tensor | None) -> None:
        """A forward pass of the decoder starts. attention_mask [B, past + T], 1 for tokens."""
        if attention_mask is not None and attention_mask.dim() != 2:
            raise _refusal("an attention mask must be [batch, tokens], 1 for tokens and 0 for padding")
        self._mask = attention_mask
        if position_ids is not None and position_ids.shape[-1] > 1:
            steps = position_ids[..., 1:] - position_ids[..., :-1]
            real = torch.ones_like(steps, dtype=torch.bool)
            if attention_mask is not None:
                mask = attention_mask[:, -position_ids.shape[-1]:].bool()
                real = mask[:, 1:] & mask[:, :-1]
            if (steps[real.expand_as(steps)] != 1).any():
                raise _refusal("positions that start again within a row (packed texts) are not supported; one text a row")

    def enter(self, layer: int, cache: Any) -> None:
        """A layer's attention starts; `cache` may be None."""
        self._cache = cache
        self._past = 0 if cache is None else int(cache.get_seq_length(layer))

    def mean(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """Mean of x [B, T, …] over the row's tokens up to each; fp32."""
        batch, count = x.shape[:2]
        valid = torch.ones(batch, count, device=x.device) if self._mask is None else self._mask[:, -count:].to(x.device).float()
        sums = (x.float() * valid.view(batch, count, *[1] * (x.dim() - 2))).cumsum(1)
        counts = valid.cumsum(1)
        if self._past:
            known = self._by_cache.get(self._cache, {}).get(layer)
            if known is None or known[2] != self._past or known[0].shape[0] != batch:
                raise _refusal(f"a cache of {self._past} tokens was not filled through this adapter; start with an empty one, or "
                               "use_cache=False")
            sums, counts = sums + known[0][:, None], counts + known[1][:, None]
        if self._cache is not None:
            if self._cache not in self._by_cache:
                self._follow(self._cache)
            self._by_cache[self._cache][layer] = sums[:, -1].detach(), counts[:, -1].detach(), self._past + count
        return sums / counts.clamp(min=1).view(batch, count, *[1] * (x.dim() - 2))

    def _follow(self, cache: Any) -> None:
        """Beams that change places (generate(num_beams=…) reorders its cache) take their sums along."""
        known = self._by_cache.setdefault(cache, {})
        reorder = getattr(cache, "reorder_cache", None)
        if reorder is None:
            return

        def both(beams: torch.Tensor) -> None:
            reorder(beams)
            for layer, (sums, counts, past) in known.items():
                at = beams.to(sums.device)
                known[layer] = sums.index_select(0, at), counts.index_select(0, at), past

        cache.reorder_cache = both


def _refusal(what: str) -> DexError:
    return DexError(f"forms prefix_mean and uniform_map: {what}", reason="NOT_SUPPORTED", category="USER")
