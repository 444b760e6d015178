"""An attached adapter into the weights (method.md §2.4): afterwards the model is a plain one."""

from __future__ import annotations

from typing import Any

import torch

from .._errors import DexError
from ._attach import handle_of
from ._site import decoder_of, linear_of


@torch.no_grad()
def fold(model: Any) -> Any:
    """Folds the adapter that attach() put beside `model` into its weights, with the handle's scale: LoRA merged, the branch
    in W_O, computed in fp32 and cast to the weights' type. Removes the hooks; there is no way back. Returns the model. Raises
    DexError NOT_FOLDABLE, and has changed nothing then."""
    handle = handle_of(model)
    reason = handle.artefact.why_not_foldable()
    if reason:
        raise DexError(reason, reason="NOT_FOLDABLE", category="USER", code="FAILED_PRECONDITION")
    for number, layer in enumerate(decoder_of(model).layers):
        names = {name for at, name in handle.low_rank if at == number}
        branch = handle.branches.get(number)
        acts = branch is not None and branch.acts and handle.scale != 0
        for name in names | ({"o_proj"} if acts else set()):
            weight = linear_of(layer, name).weight
            wide = weight.data.to(torch.float64 if weight.dtype == torch.float64 else torch.float32)
            if name in names:
                a, b, factor = handle.low_rank[number, name]
                wide = wide + factor * (b @ a).to(wide.dtype)
            if name == "o_proj" and acts and branch is not None:
                wide = branch.folded(wide, handle.scale)
            weight.data = wide.to(weight.dtype)
    handle.remove_hooks()
    return model
