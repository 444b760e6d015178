"""Whether a model with an attached adapter gives the log-probabilities that the platform serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from .._errors import DexError
from ..v1 import models_pb2
from ._attach import handle_of

# Nats, of one log-probability: what rounding explains, by the types of both sides. Measured on SmolLM2-135M over 126 ids:
# 0.036 between fp32 here and bf16 served, 0.34 between bf16 here and there.
EXACT, ONE_SIDE_ROUNDED, BOTH_SIDES_ROUNDED = 1e-3, 0.1, 0.5


@dataclasses.dataclass(frozen=True)
class Verification:
    """largest, mean: |difference| of a log-probability in nats, over `tokens`. limit: what rounding explains."""

    adapter: str
    largest: float
    mean: float
    tokens: int
    limit: float

    @property
    def agrees(self) -> bool:
        return self.largest <= self.limit  # NaN agrees with nothing


def default_tokens(vocabulary: int, context: int) -> list[list[int]]:
    """Two texts of ids, spread over the vocabulary by a formula; log-probabilities of any ids must agree."""
    length = min(64, context)
    return [[(7919 * i * i + 31 * i + 5 + start) % vocabulary for i in range(length)] for start in (0, 1013)]


def verify(model: Any, client: Any, *, adapter: str | None = None, tokens: Sequence[Sequence[int]] | None = None,
           limit: float | None = None) -> Verification:
    """Scores lists of token ids with the model and with the served adapter, at the handle's scale, and compares every
    log-probability. `client`: a dex_client.Client. adapter: its id on the platform, by default what its job published. limit:
    by default what rounding explains; sharpest with the model in fp32. The platform's content hash must be that of the
    attached folder. Raises DexError ADAPTER_MISMATCH where another adapter answers; a difference is in the result."""
    artefact = handle_of(model).artefact
    if adapter is None:
        adapter = _published(artefact.provenance.get("job_id", ""), client)
    found = client.adapters.get(adapter)
    if artefact.content_sha256 and found.content_sha256 != artefact.content_sha256:
        raise DexError(f"{adapter} has content {found.content_sha256}, the attached folder {artefact.folder} "
                       f"{artefact.content_sha256}: they are not the same adapter", reason="ADAPTER_MISMATCH", category="USER")
    base = client.models.get(found.base_model)
    texts = tokens if tokens is not None else default_tokens(base.vocab_size, base.context_length)
    differences: list[float] = []
    for text in texts:
        differences += _differences(model, client, adapter, list(text))
    if limit is None:
        limit = _limit(base.served_dtype, next(model.parameters()).dtype)
    largest = float(torch.tensor(differences, dtype=torch.float64).max())
    return Verification(adapter, largest, sum(differences) / len(differences), len(differences), limit)


def _limit(served: int, own: torch.dtype) -> float:
    here = own in (torch.float32, torch.float64)
    if served == models_pb2.Model.SERVED_DTYPE_FP32:
        return EXACT if here else ONE_SIDE_ROUNDED
    return ONE_SIDE_ROUNDED if here and served == models_pb2.Model.SERVED_DTYPE_BF16 else BOTH_SIDES_ROUNDED


def _published(job: str, client: Any) -> str:
    model = client.jobs.get(job).fine_tuned_model if job else ""
    if not model:
        raise DexError("the folder names no job that published it; name the adapter on the platform with adapter=\"ft:…\"",
                       reason="MISSING_FIELD", category="USER", param="adapter")
    return str(model)


@torch.no_grad()
def _differences(model: Any, client: Any, adapter: str, ids: list[int]) -> list[float]:
    handle = handle_of(model)
    scale = {"dex_lambda_scale": handle.scale} if handle.artefact.has_branch and handle.scale != 1 else {}
    reply = client.generate(adapter, tokens=ids, max_tokens=0, echo=True, logprobs=0, temperature=0, **scale)
    if reply.adapter.id != adapter:
        raise DexError(f"{adapter} was asked, {reply.adapter.id or reply.model} answered", reason="ADAPTER_MISMATCH")
    served = [entry.logprob for entry in reply.logprobs[1:]]
    if [entry.token_id for entry in reply.logprobs] != ids:
        raise DexError(f"{adapter} was asked for {len(ids)} log-probabilities and gave {len(reply.logprobs)}, or others")
    device = next(model.parameters()).device
    logits = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0, :-1].double()
    own = torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:], device=device)]
    return [abs(a - b) for a, b in zip(own.tolist(), served, strict=True)]
