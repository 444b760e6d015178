"""What files.validate() and files.preview() ask, and what a check has found. Pure; used by Client and aio.Client alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._fill import fill
from .v1 import files_pb2 as pb


@dataclasses.dataclass
class FileCheck:
    """A stored file, read again to its end. `statistics.tokens` is there of a check for a model."""

    findings: list[pb.Finding] = dataclasses.field(default_factory=list)  # by line, those of the structure and of the tokens
    statistics: pb.FileStatistics = dataclasses.field(default_factory=pb.FileStatistics)
    verdict: pb.FileVerdict = dataclasses.field(default_factory=pb.FileVerdict)

    @property
    def ready(self) -> bool:
        """Whether a job would train on it; else `verdict.message` says why not."""
        return bool(self.verdict.state == pb.FILE_STATE_READY)

    def add(self, part: pb.ValidateFileResponse, progress: Callable[[int, int], None] | None) -> None:
        kind = part.WhichOneof("part")
        if kind == "progress" and progress:
            progress(part.progress.bytes, part.progress.total_bytes)
        elif kind == "finding":
            self.findings.append(part.finding)
        elif kind == "statistics":
            self.statistics = part.statistics
        elif kind == "verdict":
            self.verdict = part.verdict


def stored(file: Any) -> str:
    """The id of a file of the platform: the text itself, or that of a File."""
    return file.id if isinstance(file, pb.File) else str(file)


def _encoding(fields: Mapping[str, Any]) -> Any:
    given = {name: value for name, value in fields.items() if value is not None}
    return fill(pb.RowEncoding(), given) if given else None


def validate_request(file: Any, model: str | None, max_findings: int | None, encoding: Mapping[str, Any]) -> pb.ValidateFileRequest:
    return fill(pb.ValidateFileRequest(file=stored(file)),
                {"model": model, "max_findings": max_findings, "encoding": _encoding(encoding)})


def preview_request(file: Any, model: str, lines: Iterable[int], offset: int | None, limit: int | None,
                    encoding: Mapping[str, Any]) -> pb.PreviewFileRequest:
    return fill(pb.PreviewFileRequest(file=stored(file), model=model),
                {"lines": list(lines), "offset": offset, "limit": limit, "encoding": _encoding(encoding)})
