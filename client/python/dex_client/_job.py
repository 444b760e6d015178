"""A fine-tuning job as a program holds it: follow it, wait for it, look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ._channel import GENERATION_SECONDS
from ._curves import Curves
from ._errors import DexError, JobFailed
from ._link import Link
from ._mirror import Mirror
from ._pages import checkpoint_pages
from ._progress import Progress
from ._requests import new_request_id
from ._view import JobView, Plot
from .v1 import events_pb2
from .v1 import finetuning_pb2 as pb


class Job(JobView):
    """`proto` is the job as last heard of; refresh(), watch() and wait() bring it up to date. Not thread-safe."""

    def __init__(self, link: Link, proto: pb.FineTuningJob) -> None:
        super().__init__(proto)
        self._link, self._stub = link, link.stubs.jobs

    def refresh(self, *, with_head_selection: bool = False) -> Job:
        self.proto = self._link.call(self._stub.GetFineTuningJob, pb.GetFineTuningJobRequest(
            id=self.id, with_head_selection=with_head_selection))
        return self

    def watch(self, after_sequence: int = 0, *, timeout: float | None = None) -> Iterator[events_pb2.FineTuningEvent]:
        """Events with a sequence above `after_sequence`, stored ones first, each once and in order, until the job has ended.
        Restarts of gateway and scheduler are ridden out from the last event that came. Leaving the loop ends the watching,
        not the job. Raises DexError: NOT_FOUND, or DEADLINE after `timeout` seconds."""
        def request(after: int) -> pb.WatchFineTuningJobRequest:
            return pb.WatchFineTuningJobRequest(id=self.id, after_sequence=after)

        keep = after_sequence <= self.last_sequence()
        for message in self._link.watch(self._stub.WatchFineTuningJob, request, after_sequence, timeout):
            event = self.took(message, keep)
            if event is not None:
                yield event

    def wait(self, timeout: float | None = None, *, check: bool = True, progress: bool = True,
             on_event: Callable[[events_pb2.FineTuningEvent], Any] | None = None) -> Job:
        """Blocks until the job has ended, showing its progress in a notebook or on a terminal. Raises JobFailed unless it
        SUCCEEDED (check=False: returns it), DexError DEADLINE after `timeout` seconds. A PAUSED job is waited for too."""
        shown = Progress(progress)
        for event in self.watch(self.last_sequence(), timeout=timeout):
            shown.show(self)
            if on_event is not None:
                on_event(event)
        self.refresh()
        shown.show(self)
        shown.end()
        if check and self.state != "SUCCEEDED":
            raise JobFailed(self, self.id, self.proto.error, self.state)
        return self

    def metrics(self) -> Curves:
        """One row a step so far; asks only for events that are not known yet."""
        self._read_events()
        return self.known_metrics()

    def plot(self) -> Plot:
        """Curves and head grid as one picture, as of now."""
        self._read_events()
        return self.known_plot()

    def mirror(self, run: Any, *, timeout: float | None = None) -> int:
        """Copies the job's metrics, from its first, to a W&B run, MLflow or a TensorBoard SummaryWriter until it has ended;
        how many rows were copied."""
        mirror = Mirror(run)
        for event in self.watch(timeout=timeout):
            mirror.take(event)
        return mirror.rows

    def cancel(self) -> Job:
        return self._change(self._stub.CancelFineTuningJob, pb.CancelFineTuningJobRequest)

    def pause(self) -> Job:
        """A running job writes a checkpoint first and is PAUSING until then."""
        return self._change(self._stub.PauseFineTuningJob, pb.PauseFineTuningJobRequest)

    def resume(self) -> Job:
        return self._change(self._stub.ResumeFineTuningJob, pb.ResumeFineTuningJobRequest)

    def checkpoint(self) -> pb.Checkpoint:
        """Has a RUNNING job save its state; returns once it is written and read back, up to 10 minutes."""
        return self._link.call(self._stub.CreateCheckpoint, pb.CreateCheckpointRequest(
            job=self.id, request_id=new_request_id()), GENERATION_SECONDS)

    def checkpoints(self) -> Iterator[pb.Checkpoint]:
        """Those that it has written, newest first, also those that were dropped since; without sha256."""
        return checkpoint_pages(self._link, self.id)

    def _change(self, method: Any, request: Any) -> Job:
        self.proto = self._link.call(method, request(id=self.id, request_id=new_request_id()))
        return self

    def _read_events(self) -> None:
        while True:
            page = self._link.call(self._stub.ListFineTuningEvents, pb.ListFineTuningEventsRequest(
                id=self.id, after_sequence=self.last_sequence(), page_size=1000))
            self.noted(page.events)
            if not page.has_more or not page.events:
                return

    def _repr_html_(self) -> str:
        try:
            self.refresh()
            self._read_events()
        except DexError:
            pass  # what was known before is shown; a picture of a notebook must not raise
        return self.known_html()
