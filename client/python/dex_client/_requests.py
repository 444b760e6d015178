"""The requests of the surfaces, made from what people write. Pure; used by Client and aio.Client alike."""

from __future__ import annotations

import os
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from ._fill import enum_number, fill, refuse
from .v1 import evaluation_pb2, files_pb2, finetuning_pb2, inference_pb2

METHODS = ("dex", "kvo_only", "lora", "adapter", "full", "diff")
CHUNK_BYTES = 256 << 10
_FILE_ID = re.compile(r"file-[0-9a-z]{26}")

Messages = str | Sequence[Mapping[str, str]]


def new_request_id() -> str:
    """Names one change, so that it has one effect however often it is sent."""
    return str(uuid.uuid4())


def job_spec(values: Mapping[str, Any]) -> finetuning_pb2.FineTuningJobSpec:
    """The fields of FineTuningJobSpec by name, and two words beside them: `method` names one of METHODS whose fields may
    be left at their defaults, `preset` is that of dex or kvo_only."""
    values = dict(values)
    spec, method, preset = values.pop("spec", None), values.pop("method", None), values.pop("preset", None)
    given = [name for name in METHODS if values.get(name) is not None]
    if len(given) > 1:
        raise refuse(given[1], f"and {given[0]} are two methods; a job has one", "CONFLICTING_FIELDS")
    if method is not None:
        if method not in METHODS:
            raise refuse("method", f"must be one of {', '.join(METHODS)}, got {method!r:.80}")
        if given and given[0] != method:
            raise refuse("method", f"is {method}, but {given[0]} is given", "CONFLICTING_FIELDS")
        values.setdefault(method, {})
    message = finetuning_pb2.FineTuningJobSpec()
    if spec is not None:
        message.CopyFrom(spec)
    fill(message, values)
    if preset is not None:
        kind = message.WhichOneof("method") or "dex"
        if kind not in ("dex", "kvo_only"):
            raise refuse("preset", f"is of dex and kvo_only; the method is {kind}", "UNUSED_FIELD")
        getattr(message, kind).preset = preset
    return message


def batch_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """jobs.create()'s arguments as those of its _spec()."""
    rest = dict(values)
    defaults = {"model": "", "training_file": None, "validation_file": None}
    return {**{name: rest.pop(name, default) for name, default in defaults.items()}, "values": rest}


def add_sweep(request: finetuning_pb2.BatchCreateFineTuningJobsRequest, sweep: Mapping[str, Iterable[Any]]) -> None:
    for path, values in sweep.items():
        if isinstance(values, (str, bytes)):  # else its letters would be tried
            raise refuse(path, f"must have a list of values, got {values!r:.80}")
        axis = request.sweep.add(path=path)
        for value in values:
            try:
                json_format.ParseDict(value, axis.values.add())
            except (TypeError, json_format.ParseError) as error:
                raise refuse(path, f"can't be {value!r:.80}: {error}") from error


def file_id(value: Any, field: str) -> str | pathlib.Path:
    """What a job calls a file: an id, a File of this platform, or the path of one that has to be uploaded first."""
    if isinstance(value, files_pb2.File):
        return value.id
    text = os.fspath(value)
    if _FILE_ID.fullmatch(text):
        return text
    path = pathlib.Path(text)
    if not path.is_file():
        raise refuse(field, f"is neither the id of a file nor the path of one: {text!r:.200}")
    return path


def upload_header(path: pathlib.Path, purpose: str, format: str | None, skip_budget_ratio: float | None,
                  request_id: str) -> files_pb2.UploadFileRequest.Header:
    header = files_pb2.UploadFileRequest.Header(filename=path.name, size_bytes=path.stat().st_size, request_id=request_id)
    return fill(header, {"purpose": purpose, "format": format, "skip_budget_ratio": skip_budget_ratio})


def job_filter(states: Iterable[str] = (), **fields: Any) -> finetuning_pb2.ListFineTuningJobsRequest.Filter:
    chosen = finetuning_pb2.ListFineTuningJobsRequest.Filter()
    chosen.states.extend(job_state(state) for state in states)
    return fill(chosen, fields)


def job_state(name: str) -> Any:
    return enum_number(finetuning_pb2.JobState.DESCRIPTOR, name, "states")


def evaluation_spec(subjects: Sequence[Any], tasks: Sequence[Any], **fields: Any) -> evaluation_pb2.EvaluationSpec:
    """subjects: adapter ids, mappings or messages; base models as {"model": name}. tasks: names of tasks without options,
    {"perplexity": {"file": …}}, or messages."""
    named = [{"adapter": subject} if isinstance(subject, str) and subject.startswith("ft:") else
             {"model": subject} if isinstance(subject, str) else subject for subject in subjects]
    return fill(evaluation_pb2.EvaluationSpec(), {
        "subjects": named, "tasks": [{task: {}} if isinstance(task, str) else task for task in tasks], **fields})


def generation(model: str, prompt: str | None = None, messages: Messages | None = None,
               tokens: Sequence[int] | None = None, **sampling: Any) -> inference_pb2.GenerateRequest:
    """One of prompt, messages and tokens; `sampling` is any other field of GenerateRequest."""
    given = [name for name, value in (("prompt", prompt), ("messages", messages), ("tokens", tokens)) if value is not None]
    if len(given) != 1:
        raise refuse("input", f"must be one of prompt, messages and tokens, got {' and '.join(given) or 'none'}",
                     "CONFLICTING_FIELDS" if given else "MISSING_FIELD")
    if isinstance(sampling.get("stop"), str):
        sampling["stop"] = [sampling["stop"]]
    return fill(inference_pb2.GenerateRequest(model=model), {
        "prompt": prompt, "chat": None if messages is None else chat_input(messages),
        "tokens": None if tokens is None else {"ids": list(tokens)}, **sampling})


def tokenization(model: str, text: str | None, messages: Messages | None, **fields: Any) -> inference_pb2.TokenizeRequest:
    """One of text and messages, as generation() has them."""
    if (text is None) == (messages is None):
        raise refuse("input", f"must be one of text and messages, got {'none' if text is None else 'text and messages'}",
                     "MISSING_FIELD" if text is None else "CONFLICTING_FIELDS")
    return fill(inference_pb2.TokenizeRequest(model=model), {
        "text": text, "chat": None if messages is None else chat_input(messages), **fields})


def chat_input(messages: Messages) -> dict[str, Any]:
    """A text is what one user says."""
    return {"messages": [{"role": "user", "content": messages}] if isinstance(messages, str) else messages}
