"""client.jobs: fine-tuning jobs (api.md §3)."""

from __future__ import annotations

import builtins
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ._channel import GENERATION_SECONDS, PROBE_SECONDS
from ._files import Files
from ._fill import fill
from ._job import Job
from ._link import Link
from ._pages import checkpoint_pages, pages
from ._requests import add_sweep, batch_arguments, file_id, job_filter, job_spec, new_request_id
from .v1 import admin_pb2
from .v1 import finetuning_pb2 as pb


class Jobs:
    def __init__(self, link: Link, files: Files) -> None:
        self._link, self._stub, self._files = link, link.stubs.jobs, files

    def create(self, *, model: str = "", training_file: Any = None, validation_file: Any = None,
               request_id: str | None = None, validate_only: bool = False, **spec: Any) -> Job:
        """Queues a job. training_file, validation_file: an id, a File, or the path of one, which is uploaded first. `spec` is
        any other field of FineTuningJobSpec by name (hyperparameters={"n_epochs": 1}, dex={"form": "paper"}, suffix=…), and
        method="lora", preset="code". The same request_id gives the same job. validate_only checks and resolves, stores
        nothing, and returns a Job without an id."""
        request = pb.CreateFineTuningJobRequest(
            spec=self._spec(model, training_file, validation_file, spec), request_id=request_id or new_request_id(),
            validate_only=validate_only)
        return Job(self._link, self._link.call(self._stub.CreateFineTuningJob, request))

    def create_batch(self, *, sweep: Mapping[str, Iterable[Any]] | None = None, specs: Iterable[Mapping[str, Any]] = (),
                     model: str = "", training_file: Any = None, validation_file: Any = None, request_id: str | None = None,
                     validate_only: bool = False, **spec: Any) -> builtins.list[Job]:
        """Up to 64 jobs, all or none. sweep={"hyperparameters.learning_rate": [1e-5, 5e-5]}: a job of create()'s arguments for
        each combination, the last path fastest; or `specs`, each of them create()'s arguments as a mapping. All get the same
        metadata "sweep_id"."""
        request = pb.BatchCreateFineTuningJobsRequest(request_id=request_id or new_request_id(), validate_only=validate_only)
        shared = {"model": model, "training_file": training_file, "validation_file": validation_file, **spec}
        specs = builtins.list(specs)
        if not specs or any(shared.values()):  # the platform refuses both at once, and says so
            request.spec.CopyFrom(self._spec(**batch_arguments(shared)))
        for each in specs:
            request.specs.append(self._spec(**batch_arguments(each)))
        add_sweep(request, sweep or {})
        reply = self._link.call(self._stub.BatchCreateFineTuningJobs, request)
        return [Job(self._link, job) for job in reply.jobs]

    def estimate(self, *, model: str = "", training_file: Any = None, validation_file: Any = None, probe: bool = False,
                 **spec: Any) -> pb.Estimate:
        """What a job of create()'s arguments would cost; with `probe` a worker does one update of it, up to 5 minutes."""
        request = pb.EstimateFineTuningJobRequest(spec=self._spec(model, training_file, validation_file, spec))
        if probe:
            request.mode = pb.Estimate.METHOD_PROBE
        return self._link.call(self._stub.EstimateFineTuningJob, request,
                               PROBE_SECONDS if probe else None)

    def preview_heads(self, model: str, *, file: Any = None, texts: Iterable[str] = (), preset: str | None = None,
                      head_selection: Mapping[str, Any] | None = None, seed: int = 0,
                      with_picture: bool = False) -> pb.HeadSelectionReport:
        """Which heads a job would adapt, measured by a worker on the rows of a file or on `texts`; trains nothing."""
        request = fill(pb.PreviewHeadSelectionRequest(), {
            "model": model, "file": None if file is None else self._id(file, "file"), "texts": list(texts),
            "head_selection": head_selection, "preset": preset, "seed": seed, "with_picture": with_picture})
        return self._link.call(self._stub.PreviewHeadSelection, request, GENERATION_SECONDS)

    def list(self, *, states: Iterable[str] = (), model: str | None = None, preset: str | None = None,
             metadata: Mapping[str, str] | None = None, **more: Any) -> Iterator[Job]:
        """Newest first, page by page; items carry no effective_config. `more` is any other field of the filter: method,
        suffix_prefix, text, created_after and created_before (timestamps)."""
        request = pb.ListFineTuningJobsRequest(page_size=100, filter=job_filter(
            states, model=model, preset=preset, metadata=metadata, **more))
        return (Job(self._link, found) for found in pages(self._link, self._stub.ListFineTuningJobs, request, "jobs"))

    def get(self, id: str) -> Job:
        return Job(self._link, self._link.call(self._stub.GetFineTuningJob, pb.GetFineTuningJobRequest(id=id)))

    def cancel(self, id: str) -> Job:
        return self._changed(self._stub.CancelFineTuningJob, pb.CancelFineTuningJobRequest(id=id))

    def pause(self, id: str) -> Job:
        return self._changed(self._stub.PauseFineTuningJob, pb.PauseFineTuningJobRequest(id=id))

    def resume(self, id: str) -> Job:
        return self._changed(self._stub.ResumeFineTuningJob, pb.ResumeFineTuningJobRequest(id=id))

    def update(self, id: str, **fields: Any) -> Job:
        """priority, display_name, metadata, clear_metadata, etag: nothing that changes the result can be updated."""
        return self._changed(self._stub.UpdateFineTuningJob, fill(pb.UpdateFineTuningJobRequest(id=id), fields))

    def redrive(self, id: str, *, deadline_seconds: float | None = None) -> Job:
        """For operators: a FAILED job is QUEUED again, with all counters at 0, from its last checkpoint."""
        return self._changed(self._link.stubs.admin.RedriveFineTuningJob, fill(
            admin_pb2.RedriveFineTuningJobRequest(id=id), {"deadline_seconds": deadline_seconds}))

    def checkpoints(self, id: str) -> Iterator[pb.Checkpoint]:
        """Those that a job has written, newest first, also those that were dropped since; without sha256."""
        return checkpoint_pages(self._link, id)

    def delete(self, id: str, *, delete_adapter: bool = False) -> None:
        """Forgets a finished job; its adapter stays unless asked."""
        self._link.call(self._stub.DeleteFineTuningJob, pb.DeleteFineTuningJobRequest(
            id=id, delete_adapter=delete_adapter, request_id=new_request_id()))

    def _changed(self, method: Any, request: Any) -> Job:
        request.request_id = request.request_id or new_request_id()
        return Job(self._link, self._link.call(method, request))

    def _spec(self, model: str, training_file: Any, validation_file: Any, values: dict[str, Any]) -> pb.FineTuningJobSpec:
        ids = {name: None if file is None else self._id(file, name)
               for name, file in (("training_file", training_file), ("validation_file", validation_file))}
        return job_spec({"model": model or None, **ids, **values})

    def _id(self, file: Any, field: str) -> str:
        named = file_id(file, field)
        return self._files.upload(named).id if isinstance(named, pathlib.Path) else named
