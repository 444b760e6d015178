"""client.adapters: published adapters (api.md §2)."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from . import _artefacts
from ._channel import GENERATION_SECONDS
from ._fill import fill
from ._link import Link
from ._pages import pages
from ._requests import CHUNK_BYTES, new_request_id
from .v1 import adapters_pb2 as pb


class Adapters:
    def __init__(self, link: Link) -> None:
        self._link, self._stub = link, link.stubs.adapters

    def list(self, *, base_model: str | None = None, job: str | None = None) -> Iterator[pb.Adapter]:
        request = fill(pb.ListAdaptersRequest(page_size=100), {"base_model": base_model, "job": job})
        return pages(self._link, self._stub.ListAdapters, request, "adapters")

    def get(self, id: str) -> pb.Adapter:
        return self._link.call(self._stub.GetAdapter, pb.GetAdapterRequest(id=id))

    def load(self, id: str, *, wait_seconds: float = 60, allow_no_effect: bool = False) -> pb.Adapter:
        """Returns once every worker that serves the base has loaded and proven it; else DexError ADAPTER_LOADING or _NOT_PROVEN."""
        request = pb.LoadAdapterRequest(id=id, wait_seconds=wait_seconds, allow_no_effect=allow_no_effect,
                                        request_id=new_request_id())
        reply = self._link.call(self._stub.LoadAdapter, request, wait_seconds + self._link.timeout)
        return reply.adapter

    def unload(self, id: str) -> pb.Adapter:
        """Running requests finish first."""
        return self._link.call(self._stub.UnloadAdapter,
                               pb.UnloadAdapterRequest(id=id, request_id=new_request_id()))

    def pin(self, id: str, pinned: bool = True) -> pb.Adapter:
        """Keeps it in memory, and unload() refused, until it is unpinned. Waits for no worker."""
        return self._link.call(self._stub.PinAdapter,
                               pb.PinAdapterRequest(id=id, pinned=pinned, request_id=new_request_id()))

    def set_alias(self, alias: str, adapter: str, *, override_gates: bool = False, etag: str = "",
                  create_only: bool = False, wait_seconds: float = 60) -> pb.AdapterAlias:
        """Points the name to the adapter, for every client at once, when all workers have it. Generations may use it as model."""
        request = pb.SetAdapterAliasRequest(alias=alias, adapter=adapter, override_gates=override_gates, etag=etag,
                                            create_only=create_only, wait_seconds=wait_seconds, request_id=new_request_id())
        return self._link.call(self._stub.SetAdapterAlias, request, wait_seconds + self._link.timeout)

    def aliases(self) -> Iterator[pb.AdapterAlias]:
        return pages(self._link, self._stub.ListAdapterAliases, pb.ListAdapterAliasesRequest(page_size=100), "aliases")

    def delete_alias(self, alias: str) -> pb.AdapterAlias:
        """Its adapter stays. The alias as it was."""
        return self._link.call(self._stub.DeleteAdapterAlias,
                               pb.DeleteAdapterAliasRequest(alias=alias, request_id=new_request_id()))

    def delete(self, id: str) -> None:
        self._link.call(self._stub.DeleteAdapter, pb.DeleteAdapterRequest(id=id, request_id=new_request_id()))

    def download(self, id: str, folder: Any) -> pathlib.Path:
        """Unpacks the artefact into `folder`, which must not exist or be empty; every file is held against its hash."""
        return self._unpacked(pb.DownloadAdapterRequest(id=id), folder)

    def export(self, id: str, folder: Any, *, dtype: str | None = None) -> pb.Export:
        """The adapter inside its base, as a plain Hugging Face folder (dtype "fp32" or "bf16", unset: the base's). Waits for
        the worker that makes it, up to 10 minutes. NOT_FOLDABLE for what is not linear a token."""
        request = fill(pb.ExportAdapterRequest(adapter=id, kind=pb.ExportAdapterRequest.KIND_FOLDED_SAFETENSORS,
                                               request_id=new_request_id()), {"dtype": dtype})
        _artefacts.prepare(folder)
        made: pb.Export = self._link.call(self._stub.ExportAdapter, request, GENERATION_SECONDS)
        self._unpacked(pb.DownloadAdapterRequest(export=made.id), folder)
        return made

    def get_export(self, id: str) -> pb.Export:
        """What export() has made; it is kept for a day."""
        return self._link.call(self._stub.GetExport, pb.GetExportRequest(id=id))

    def import_folder(self, folder: Any, *, base_model: str, suffix: str = "", request_id: str | None = None) -> pb.Adapter:
        """Sends an adapter's folder, ours or a LoRA as PEFT saved it; a worker holds every tensor against the base."""
        with tempfile.TemporaryFile() as tar:
            size = _artefacts.pack(folder, tar)
            header = pb.ImportAdapterRequest.Header(base_model=base_model, suffix=suffix, size_bytes=size,
                                                    request_id=request_id or new_request_id())
            return self._link.call(self._stub.ImportAdapter,
                                   lambda: parts(header, tar), GENERATION_SECONDS)

    def _unpacked(self, request: Any, folder: Any) -> pathlib.Path:
        folder = _artefacts.prepare(folder)
        with tempfile.TemporaryFile(dir=folder.parent) as tar:
            self._link.download(self._stub.DownloadAdapter, request, tar)
            tar.seek(0)
            return _artefacts.unpack(tar, folder)


def parts(header: pb.ImportAdapterRequest.Header, tar: Any) -> Iterator[pb.ImportAdapterRequest]:
    yield pb.ImportAdapterRequest(header=header)
    tar.seek(0)
    while chunk := tar.read(CHUNK_BYTES):
        yield pb.ImportAdapterRequest(chunk=chunk)
