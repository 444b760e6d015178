"""client.files: data files, checked while they arrive (api.md §5)."""

from __future__ import annotations

import builtins
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._channel import GENERATION_SECONDS
from ._errors import DexError, InvalidFile
from ._file_checks import FileCheck, preview_request, validate_request
from ._fill import fill
from ._link import Link
from ._pages import pages
from ._requests import CHUNK_BYTES, new_request_id, upload_header
from .v1 import files_pb2

Sent = Callable[[int, int], None]


class Files:
    def __init__(self, link: Link) -> None:
        self._link, self._stub = link, link.stubs.files

    def upload(self, path: str | os.PathLike[str], *, purpose: str = "fine-tune", format: str | None = None,
               skip_budget_ratio: float | None = None, check: bool = True, progress: Sent | None = None,
               request_id: str | None = None) -> files_pb2.File:
        """Sends a file; the platform has read all of it when this returns. A connection that breaks is taken up again under
        the same request_id, so the file is there once. Raises InvalidFile, with all findings, for one that can't be trained
        on; check=False returns it instead. progress(sent, total) gets bytes."""
        path = pathlib.Path(path)
        if not path.is_file():
            raise DexError(f"there is no regular file {path}", reason="RESOURCE_NOT_FOUND", category="USER", param="path")
        header = upload_header(path, purpose, format, skip_budget_ratio, request_id or new_request_id())
        file: files_pb2.File = self._link.call(self._stub.UploadFile, lambda: _parts(path, header, progress),
                                               GENERATION_SECONDS)
        if check and file.state == files_pb2.FILE_STATE_INVALID:
            raise InvalidFile(file, self.findings(file.id))
        return file

    def list(self, *, state: str | None = None) -> Iterator[files_pb2.File]:
        request = fill(files_pb2.ListFilesRequest(page_size=100), {"state": state})
        return pages(self._link, self._stub.ListFiles, request, "files")

    def get(self, id: str) -> files_pb2.File:
        return self._link.call(self._stub.GetFile, files_pb2.GetFileRequest(id=id))

    def findings(self, id: str, *, codes: tuple[str, ...] = ()) -> builtins.list[files_pb2.Finding]:
        """All stored findings (the first 1000), or those with one of these codes."""
        found: builtins.list[files_pb2.Finding] = []
        while True:
            page = self._link.call(self._stub.ListFindings, files_pb2.ListFindingsRequest(
                id=id, codes=codes, page_size=1000, offset=len(found)))
            found += page.findings
            if not page.findings or len(found) >= page.total:
                return found

    def validate(self, file: Any, *, model: str | None = None, max_findings: int | None = None, progress: Sent | None = None,
                 **encoding: Any) -> FileCheck:
        """Reads a stored file (an id or a File) again to its end: its structure, and with `model` what its rows are to that
        model's tokenizer and template, as a job finds before step 1. `encoding`: preset, max_seq_length, truncation,
        train_on_inputs, as a job would have them. max_findings: of each layer (1000, at most 10,000). progress(read, total)
        gets bytes. A file with faults is an answer here, not an error: FileCheck.ready."""
        check = FileCheck()
        request = validate_request(file, model, max_findings, encoding)
        for part in self._link.stream(self._stub.ValidateFile, request, GENERATION_SECONDS):
            check.add(part, progress)
        return check

    def preview(self, file: Any, model: str, *, lines: Iterable[int] = (), offset: int | None = None, limit: int | None = None,
                **encoding: Any) -> files_pb2.PreviewFileResponse:
        """Exactly what training sees of a few rows: ids, loss weights, why a row is left out. Of `lines`, at most 50, or of
        `limit` sequences (10, at most 50) behind the first `offset` good rows; next_offset goes on. `encoding`: as validate."""
        return self._link.call(self._stub.PreviewFile, preview_request(file, model, lines, offset, limit, encoding),
                               GENERATION_SECONDS)

    def download(self, id: str, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes the file's bytes to `path`, which must not exist; it appears when they are complete."""
        path = pathlib.Path(path)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as out:
            self._link.download(self._stub.DownloadFile, files_pb2.DownloadFileRequest(id=id), out)
            os.link(out.name, path)  # refuses to replace what is there
        return path

    def delete(self, id: str, *, request_id: str | None = None) -> None:
        self._link.call(self._stub.DeleteFile, files_pb2.DeleteFileRequest(id=id, request_id=request_id or new_request_id()))


def _parts(path: pathlib.Path, header: Any, progress: Sent | None) -> Iterator[files_pb2.UploadFileRequest]:
    yield files_pb2.UploadFileRequest(header=header)
    sent = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield files_pb2.UploadFileRequest(chunk=chunk)
            sent += len(chunk)
            if progress:
                progress(sent, header.size_bytes)
