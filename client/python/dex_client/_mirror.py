"""A job's metrics copied to the run of an experiment tracker. Knows no tracker's package, only what its runs can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._errors import DexError

Sink = Callable[[Mapping[str, float], int], None]


def sink_of(run: Any) -> tuple[Sink, bool]:
    """(where rows go, whether it takes a step again or an earlier one): TensorBoard's SummaryWriter (add_scalar), MLflow
    (log_metrics: the module, or a run's own object), W&B (log). Asked in this order."""
    if callable(getattr(run, "add_scalar", None)):
        def to_tensorboard(values: Mapping[str, float], step: int) -> None:
            for name, value in values.items():
                run.add_scalar(name, value, step)
        return to_tensorboard, True
    if callable(getattr(run, "log_metrics", None)):
        return lambda values, step: run.log_metrics(dict(values), step=step), True
    if callable(getattr(run, "log", None)):
        return lambda values, step: run.log(dict(values), step=step), False
    raise DexError(f"a {type(run).__name__} can't be mirrored to; give a W&B run (log), MLflow (log_metrics) or "
                   "TensorBoard's SummaryWriter (add_scalar)", reason="INVALID_FIELD", category="USER", param="run")


def values_of(event: Any) -> tuple[int, dict[str, float]] | None:
    """(step, numbers by name) of an event with curves; None for another one."""
    if event.HasField("metrics"):
        said = event.metrics
        return said.step, {"train/loss": said.train_loss, "train/grad_norm": said.grad_norm,
                           "train/learning_rate": said.learning_rate, "train/lambda_mean": said.lambda_mean,
                           "train/tokens": float(said.trained_tokens), "train/tokens_per_second": said.tokens_per_second}
    if event.HasField("eval_complete"):
        found = event.eval_complete
        return found.step, {"valid/loss": found.valid_loss, "valid/token_accuracy": found.token_accuracy,
                            "valid/branch_ratio": found.branch_ratio}
    return None


class Mirror:
    """Copies events; `rows` counts what was copied. Where a tracker takes no earlier step (W&B), the steps that a job
    repeats after a rollback are left out until it is past them."""

    def __init__(self, run: Any) -> None:
        self._sink, self._takes_any_step = sink_of(run)
        self._last, self.rows = -1, 0

    def take(self, event: Any) -> None:
        found = values_of(event)
        if found is None or (not self._takes_any_step and found[0] < self._last):
            return
        step, values = found
        self._sink(values, step)
        self._last, self.rows = max(self._last, step), self.rows + 1
