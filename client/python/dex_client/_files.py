"""client.files: data files, checked while they arrive (api.md §5)."""

from __future__ import annotations

import builtins
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from ._channel import GENERATION_SECONDS
from ._errors import DexError, InvalidFile
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
