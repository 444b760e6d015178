"""What a job or an evaluation looks like: state, curves and heads out of its last known message and events. No I/O."""

from __future__ import annotations

import html
from typing import Any

from . import _svg
from ._curves import Curves, head_layers, rows_of
from ._fill import short
from ._policy import TERMINAL
from .v1 import events_pb2, finetuning_pb2

_CHARTS = (("Loss, nats a token", {"train": "train_loss", "validation": "valid_loss"}), ("λ, mean", {"λ": "lambda_mean"}),
           ("Branch ratio", {"ratio": "branch_ratio"}), ("Learning rate", {"rate": "learning_rate"}),
           ("Gradient norm", {"norm": "grad_norm"}))


class Plot:
    """Charts as one SVG document: a notebook shows it, save() writes it."""

    def __init__(self, charts: list[str]) -> None:
        self.svg = _stacked([chart for chart in charts if chart])

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Any) -> None:
        with open(path, "w", encoding="utf-8") as out:
            out.write(self.svg)


def _stacked(charts: list[str]) -> str:
    """Two charts a row, each as an <svg> inside the outer one."""
    placed = "".join(f'<g transform="translate({index % 2 * 470},{index // 2 * 200})">{chart}</g>'
                     for index, chart in enumerate(charts))
    height = (len(charts) + 1) // 2 * 200
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 {height}" width="940" height="{height}">'
            f"{placed}</svg>")


class Work:
    """Base of Job and Evaluation. `proto` is the last known message, `events` what has been read of its events."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.events: list[Any] = []

    @property
    def id(self) -> str:
        return str(self.proto.id)

    @property
    def state(self) -> str:
        """QUEUED, VALIDATING_FILES, RUNNING, PAUSING, CANCELLING, PAUSED, SUCCEEDED, FAILED, CANCELLED or EXPIRED."""
        return short(finetuning_pb2.JobState.DESCRIPTOR, self.proto.state)

    @property
    def phase(self) -> str:
        """What a RUNNING one is doing, "TRAINING"; else empty."""
        return short(events_pb2.JobPhase.DESCRIPTOR, self.proto.phase) if self.proto.phase else ""

    @property
    def done(self) -> bool:
        return self.proto.state in TERMINAL

    @property
    def progress(self) -> events_pb2.Progress:
        return self.proto.progress

    @property
    def error(self) -> finetuning_pb2.JobError | None:
        return self.proto.error if self.proto.HasField("error") else None

    def last_sequence(self) -> int:
        return int(self.events[-1].sequence) if self.events else 0

    def took(self, message: Any, keep: bool) -> Any | None:
        """Notes a message of a watch; the event in it, if there is one. `keep`: no event before it is missing here."""
        if message.HasField("snapshot"):
            self.proto.CopyFrom(message.snapshot)
        if not message.HasField("event"):
            return None
        if keep:
            self.noted([message.event])
        if message.event.HasField("metrics"):
            self._note_progress(message.event.metrics)
        return message.event

    def _note_progress(self, metrics: events_pb2.Metrics) -> None:
        """Between two snapshots the progress is what the newest metrics say."""
        self.proto.progress.MergeFrom(events_pb2.Progress(
            step=metrics.step, epoch=metrics.epoch, train_loss=metrics.train_loss, lambda_mean=metrics.lambda_mean,
            grad_norm=metrics.grad_norm, learning_rate=metrics.learning_rate, trained_tokens=metrics.trained_tokens,
            tokens_per_second=metrics.tokens_per_second))

    def noted(self, events: Any) -> None:
        """Keeps events that are not known yet, in their order."""
        last = self.last_sequence()
        self.events += [event for event in events if event.sequence > last]

    def line(self) -> str:
        """One line for a terminal."""
        said, parts = self.progress, [self.state.lower() + (f" ({self.phase.lower()})" if self.phase else "")]
        if said.total_steps:
            parts.append(f"step {said.step}/{said.total_steps}")
        if said.HasField("train_loss"):
            parts.append(f"loss {said.train_loss:.4f}")
        if said.HasField("valid_loss"):
            parts.append(f"validation {said.valid_loss:.4f}")
        if said.HasField("lambda_mean"):
            parts.append(f"λ {said.lambda_mean:.4f}")
        if said.tokens_per_second and not self.done:
            parts.append(f"{said.tokens_per_second:.0f} tok/s, {said.estimated_remaining_seconds:.0f} s left")
        return "  ".join(parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.line()})"


class JobView(Work):
    """What a Job shows of itself without asking anybody."""

    proto: finetuning_pb2.FineTuningJob

    @property
    def fine_tuned_model(self) -> str:
        """The adapter's id, once SUCCEEDED; else empty."""
        return self.proto.fine_tuned_model

    def known_metrics(self) -> Curves:
        return Curves(rows_of(self.events))

    def known_plot(self) -> Plot:
        return Plot([*self._charts(), _svg.head_grid(head_layers(self.events))])

    def _charts(self) -> list[str]:
        curves = self.known_metrics()
        return [_svg.line_chart(title, {name: curves.series(column) for name, column in columns.items()})
                for title, columns in _CHARTS]

    def known_html(self) -> str:
        job = self.proto
        facts = {"state": self.line(), "model": job.model, "adapter": job.fine_tuned_model, "worker": job.worker,
                 "waits": f"place {job.queue_position}" if job.HasField("queue_position") else "",
                 "error": f"{job.error.message} ({job.error.code})" if job.HasField("error") else ""}
        if job.HasField("branch_effect"):
            verdict = short(events_pb2.BranchEffect.Verdict.DESCRIPTOR, job.branch_effect.verdict)
            facts["branch effect"] = f"{verdict}, {_svg.number(job.branch_effect.value)}"
        table = "".join(f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
                        for name, value in facts.items() if value)
        done = min(max(self.progress.progress_percentage, 0.0), 100.0)
        bar = "" if self.done else f"<progress max='100' value='{done:.1f}' aria-label='progress'></progress>"
        pictures = "".join(f"<div style='display:inline-block;margin:4px'>{picture}</div>"
                           for picture in [*self._charts(), _svg.head_grid(head_layers(self.events))] if picture)
        return f"<div><b>{html.escape(self.id)}</b> {bar}<table>{table}</table>{pictures}</div>"
