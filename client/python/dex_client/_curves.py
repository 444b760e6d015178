"""A job's curves out of its events. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, overload

Row = dict[str, Any]

_TRAINED = ("epoch", "train_loss", "grad_norm", "learning_rate", "trained_tokens", "tokens_per_second", "lambda_mean")


def rows_of(events: Iterable[Any]) -> list[Row]:
    """One row a step, in the order of steps: what `metrics` and `eval_complete` events say of it. Columns that an event
    does not have are absent; `lambda` and `branch_ratio_by_layer` are lists by layer, None where no head is selected. A
    job that was rolled back or restarted says some steps again: the later word counts."""
    rows: dict[int, Row] = {}
    for event in sorted(events, key=lambda event: event.sequence):
        if event.HasField("metrics"):
            said = event.metrics
            row = rows.setdefault(said.step, {"step": said.step})
            row.update({name: getattr(said, name) for name in _TRAINED})
            if len(getattr(said, "lambda")):
                row["lambda"] = list(getattr(said, "lambda"))
            if len(said.branch_ratio):
                row["branch_ratio_by_layer"] = [None if math.isnan(ratio) else ratio for ratio in said.branch_ratio]
        elif event.HasField("eval_complete"):
            found = event.eval_complete
            rows.setdefault(found.step, {"step": found.step}).update(
                valid_loss=found.valid_loss, token_accuracy=found.token_accuracy, branch_ratio=found.branch_ratio)
    return [rows[step] for step in sorted(rows)]


class Curves(Sequence[Row]):
    """The rows of rows_of(), as a sequence; a snapshot that does not change."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = list(rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Curves({len(self)} steps; {', '.join(self.columns)})"

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def series(self, column: str) -> list[tuple[float, float]]:
        """(step, value) of the rows that have a finite number there."""
        pairs = [(float(row["step"]), row.get(column)) for row in self._rows]
        return [(step, float(value)) for step, value in pairs if isinstance(value, (int, float)) and math.isfinite(value)]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with one line a step. Raises ImportError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Curves.to_pandas needs pandas: pip install pandas; without it, the rows are plain dicts: "
                              "list(job.metrics())") from error
        return pandas.DataFrame(self._rows, columns=self.columns)


def head_layers(events: Iterable[Any]) -> list[tuple[list[float], set[int]]]:
    """The newest head selection: by layer the entropy of each head (may be empty) and the heads that were chosen."""
    newest = max((event for event in events if event.HasField("head_selection_complete")),
                 key=lambda event: event.sequence, default=None)
    if newest is None:
        return []
    return [(list(layer.entropy), set(layer.selected)) for layer in newest.head_selection_complete.layers]
