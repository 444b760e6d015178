"""client.evaluations: adapters measured against their base on the same samples (api.md §2)."""

from __future__ import annotations

import asyncio
import pathlib
import tempfile
from collections.abc import Callable, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from .. import _artefacts
from .._errors import JobFailed
from .._evaluations import EvaluationView
from .._fill import fill
from .._progress import Progress
from .._requests import evaluation_spec, job_state, new_request_id
from ..v1 import evaluation_pb2 as pb
from ..v1 import events_pb2
from ._link import Link
from ._pages import pages


class Evaluation(EvaluationView):
    """`proto` is the evaluation as last heard of. Not thread-safe."""

    def __init__(self, link: Link, proto: pb.Evaluation) -> None:
        super().__init__(proto)
        self._link, self._stub = link, link.stubs.evaluations

    async def refresh(self, *, with_pictures: bool = False) -> Evaluation:
        self.proto = await self._link.call(self._stub.GetEvaluation, pb.GetEvaluationRequest(
            id=self.id, with_pictures=with_pictures))
        return self

    async def watch(self, after_sequence: int = 0, *, timeout: float | None = None) -> AsyncIterator[events_pb2.FineTuningEvent]:
        """As Job.watch()."""
        def request(after: int) -> pb.WatchEvaluationRequest:
            return pb.WatchEvaluationRequest(id=self.id, after_sequence=after)

        keep = after_sequence <= self.last_sequence()
        async for message in self._link.watch(self._stub.WatchEvaluation, request, after_sequence, timeout):
            event = self.took(message, keep)
            if event is not None:
                yield event

    async def wait(self, timeout: float | None = None, *, check: bool = True, progress: bool = True,
             on_event: Callable[[events_pb2.FineTuningEvent], Any] | None = None) -> Evaluation:
        """As Job.wait(); afterwards rows() and report are there."""
        shown = Progress(progress)
        async for event in self.watch(self.last_sequence(), timeout=timeout):
            shown.show(self)
            if on_event is not None:
                on_event(event)
        await self.refresh()
        shown.show(self)
        shown.end()
        if check and self.state != "SUCCEEDED":
            raise JobFailed(self, self.id, self.proto.error, self.state)
        return self

    async def cancel(self) -> Evaluation:
        self.proto = await self._link.call(self._stub.CancelEvaluation, pb.CancelEvaluationRequest(
            id=self.id, request_id=new_request_id()))
        return self

    def samples(self, *, task: str = "", subject: str = "", only_changed: bool = False) -> AsyncIterator[pb.EvaluationSample]:
        """What was asked and answered, page by page."""
        request = pb.ListEvaluationSamplesRequest(id=self.id, task=task, subject=subject, only_changed=only_changed,
                                                  page_size=100)
        return pages(self._link, self._stub.ListEvaluationSamples, request, "samples")

    async def download(self, folder: Any) -> pathlib.Path:
        """results.json, report.md, pictures: into `folder`, which must not exist or be empty."""
        folder = _artefacts.prepare(folder)
        with tempfile.TemporaryFile(dir=folder.parent) as tar:
            await self._link.download(self._stub.DownloadEvaluation, pb.DownloadEvaluationRequest(id=self.id), tar)
            tar.seek(0)
            return await asyncio.to_thread(_artefacts.unpack, tar, folder)


class Evaluations:
    def __init__(self, link: Link) -> None:
        self._link, self._stub = link, link.stubs.evaluations

    async def create(self, subjects: Sequence[Any], tasks: Sequence[Any], *, seed: int | None = None,
               confidence: float | None = None, metadata: Mapping[str, str] | None = None, request_id: str | None = None,
               validate_only: bool = False) -> Evaluation:
        """subjects: names of base models and adapters, or mappings as EvaluationSubject; the first is what the others are
        compared with. tasks: "multi_needle", {"perplexity": {"file": "file-…"}} …"""
        spec = evaluation_spec(subjects, tasks, seed=seed, confidence=confidence, metadata=metadata)
        return Evaluation(self._link, await self._link.call(self._stub.CreateEvaluation, pb.CreateEvaluationRequest(
            spec=spec, request_id=request_id or new_request_id(), validate_only=validate_only)))

    def list(self, *, states: Iterable[str] = (), metadata: Mapping[str, str] | None = None) -> AsyncIterator[Evaluation]:
        chosen = fill(pb.ListEvaluationsRequest.Filter(), {"states": [job_state(state) for state in states],
                                                           "metadata": metadata})
        request = pb.ListEvaluationsRequest(page_size=100, filter=chosen)
        return (Evaluation(self._link, found)
                async for found in pages(self._link, self._stub.ListEvaluations, request, "evaluations"))

    async def get(self, id: str) -> Evaluation:
        return Evaluation(self._link, await self._link.call(self._stub.GetEvaluation, pb.GetEvaluationRequest(id=id)))

    async def compare(self, a: str, b: str, *, subject_a: str = "", subject_b: str = "") -> pb.CompareEvaluationsResponse:
        """What b has measured against what a has, on the same samples."""
        return await self._link.call(self._stub.CompareEvaluations, pb.CompareEvaluationsRequest(
            a=a, b=b, subject_a=subject_a, subject_b=subject_b))

    async def delete(self, id: str) -> None:
        await self._link.call(self._stub.DeleteEvaluation, pb.DeleteEvaluationRequest(id=id, request_id=new_request_id()))
