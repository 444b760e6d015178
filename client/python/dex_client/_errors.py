"""Failures as people and programs see them: the platform's google.rpc details (api.md §1) as attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc

from .rpc import error_details_pb2, status_pb2

_DETAILS = "grpc-status-details-bin"


class DexError(RuntimeError):
    """What went wrong, of what, and what to do about it.

    reason: the word of api.md §1 that programs test for ("FILE_NOT_READY"); empty where nobody of the platform answered.
    category: who acts, USER, SYSTEM or CAPACITY. retryable: the same call may succeed later. request_id: of the call, for
    the operator's logs. param: the first bad field. code: gRPC's ("NOT_FOUND"). violations: every bad field and what is
    wrong with it. metadata: the reason's own facts. retry_after_seconds: when the platform wants to be asked again.
    """

    def __init__(self, message: str, *, reason: str = "", category: str = "", retryable: bool = False, request_id: str = "",
                 param: str = "", code: str = "", violations: Sequence[tuple[str, str]] = (),
                 metadata: Mapping[str, str] | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.category, self.retryable = reason, category, retryable
        self.request_id, self.param, self.code = request_id, param, code
        self.violations = list(violations)
        self.metadata = dict(metadata or {})
        self.retry_after_seconds = retry_after_seconds


class InvalidFile(DexError):
    """An uploaded file that can't be trained on: `file` (dex.v1.File) and `findings`, line by line."""

    def __init__(self, file: Any, findings: Sequence[Any]) -> None:
        first = next((f"; the first is in line {finding.line}: {finding.message}" for finding in findings), "")
        super().__init__(f"{file.filename} ({file.id}) has faults: {sum(file.finding_counts.values())} findings{first}",
                         reason="FILE_INVALID", category="USER", code="FAILED_PRECONDITION")
        self.file, self.findings = file, list(findings)


class JobFailed(DexError):
    """A job or an evaluation ended in another state than SUCCEEDED; `job` is the handle that was waited for."""

    def __init__(self, job: Any, what: str, error: Any, state: str) -> None:
        said = f": {error.message} ({error.code})" if error.code else ""
        super().__init__(f"{what} ended {state}{said}", reason=error.code or state, category=error.category,
                         retryable=error.retryable, param=error.param)
        self.job = job


def _unpacked(details: Iterable[Any], kind: type) -> Any:
    """The first detail of this kind, or an empty one. Any's type URL has Google's name; ours is another (setup.py)."""
    found = kind()
    for detail in details:
        if detail.type_url.rpartition("/")[2] == f"google.rpc.{found.DESCRIPTOR.name}":
            found.ParseFromString(detail.value)
            break
    return found


def from_rpc(error: Any, address: str, origin: str) -> DexError:
    """A grpc.RpcError or grpc.aio.AioRpcError as a DexError. Without the platform's details nobody of it was there."""
    code, said = error.code(), error.details() or ""
    carried = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS), None)
    if carried is None:
        if code is grpc.StatusCode.UNAVAILABLE:
            said = (f"nobody answers at {address}, named by {origin} ({said}); start dexd, or name the platform with "
                    "Client(server=\"host:port\") or DEX_SERVER")
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
            said = f"the platform at {address} did not answer in time ({said}); give it more with timeout="
        return DexError(said or code.name, code=code.name, retryable=code is grpc.StatusCode.UNAVAILABLE,
                        reason="DEADLINE" if code is grpc.StatusCode.DEADLINE_EXCEEDED else "",
                        category="SYSTEM" if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) else "")
    status = status_pb2.Status.FromString(carried)
    info = _unpacked(status.details, error_details_pb2.ErrorInfo)
    bad = _unpacked(status.details, error_details_pb2.BadRequest)
    retry = _unpacked(status.details, error_details_pb2.RetryInfo)
    metadata = dict(info.metadata)
    after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9 if retry.HasField("retry_delay") else None
    return DexError(status.message or said, reason=info.reason, category=metadata.pop("category", ""),
                    retryable=metadata.pop("retryable", "") == "true", request_id=metadata.pop("request_id", ""),
                    param=metadata.pop("param", ""), code=code.name, metadata=metadata, retry_after_seconds=after,
                    violations=[(field.field, field.description) for field in bad.field_violations])
