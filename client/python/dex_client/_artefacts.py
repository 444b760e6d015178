"""Adapters as tar archives: unpacked with every hash checked, packed from a folder. Files only, no network."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import tarfile
import tempfile
from typing import IO, Any

from ._errors import DexError

_PACKED = ("adapter_config.json", "adapter_model.safetensors", "checksums.json", "provenance.json")


def _corrupt(what: str) -> DexError:
    return DexError(f"the download is damaged: {what}; download it again", reason="ARTIFACT_CORRUPT", category="SYSTEM",
                    code="DATA_LOSS")


def prepare(folder: Any) -> pathlib.Path:
    """A folder to unpack into, which must not exist or be empty; its parents are made."""
    folder = pathlib.Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DexError(f"{folder} exists and is not an empty folder; name another one", reason="INVALID_FIELD",
                       category="USER", param="folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def unpack(tar: IO[bytes], folder: pathlib.Path) -> pathlib.Path:
    """Unpacks `tar` into `folder` (of prepare()) by way of a temporary name: regular files with plain names, each held
    against checksums.json. After a failure nothing is left."""
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with tarfile.open(fileobj=tar, mode="r:") as archive:
            for entry in archive:
                if not entry.isfile() or entry.name in ("", ".", "..") or "/" in entry.name or "\\" in entry.name:
                    raise _corrupt(f"{entry.name!r:.100} is not a file with a plain name")
                source = archive.extractfile(entry)
                assert source is not None  # of a regular file there is one
                with source, open(scratch / entry.name, "wb") as out:
                    shutil.copyfileobj(source, out)
        _check(scratch)
        if folder.exists():
            folder.rmdir()
        scratch.chmod(0o755)
        scratch.rename(folder)
    except tarfile.TarError as error:
        raise _corrupt(str(error)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """checksums.json, which must name exactly the other files of the folder."""
    try:
        sums = json.loads((folder / "checksums.json").read_text())
    except (OSError, ValueError) as error:
        raise _corrupt(f"checksums.json can't be read ({error})") from error
    there = {name for name in os.listdir(folder) if name != "checksums.json"}
    if not isinstance(sums, dict) or set(sums) != there:
        named = set(sums) if isinstance(sums, dict) else set()
        raise _corrupt(f"checksums.json and the files differ: missing {sorted(named - there)}, unknown {sorted(there - named)}")
    return sums


def sha256_of(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _check(folder: pathlib.Path) -> None:
    for name, expected in checksums(folder).items():
        found = sha256_of(folder / name)
        if found != expected:
            raise _corrupt(f"{name} has SHA-256 {found}, checksums.json says {expected}")


def pack(folder: Any, out: IO[bytes]) -> int:
    """The adapter in `folder` as a tar in `out`, which stands at its beginning afterwards; its bytes."""
    folder = pathlib.Path(folder)
    for name in _PACKED[:2]:
        if not (folder / name).is_file():
            raise DexError(f"{folder / name} is missing; an adapter's folder has {_PACKED[0]} and {_PACKED[1]}",
                           reason="RESOURCE_NOT_FOUND", category="USER", param="folder")
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name in _PACKED:
            if (folder / name).is_file():
                archive.add(folder / name, arcname=name, filter=_plain)
    size = out.tell()
    out.seek(0)
    return size


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0  # the same files make the same bytes
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry
