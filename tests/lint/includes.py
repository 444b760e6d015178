#!/usr/bin/env python3
"""Reads the #include lines of every room against the table of architecture.md §3.

usage: includes.py REPOSITORY
Prints one line a forbidden include and exits 1, or a count and exits 0.
"""

import re
import sys
from pathlib import Path

# Heaviest libraries by the start of their headers' names.
LIBRARIES = {
    "grpc": ("grpc/", "grpcpp/"),
    "protobuf": ("google/protobuf/",),
    "hiredis": ("hiredis/",),
    "libtorch": ("ATen/", "torch/", "c10/", "caffe2/"),
    "prometheus": ("prometheus/",),
    "boost": ("boost/",),
}

# room → (rooms it may use beside itself, libraries of the list above that it may use). The longest room name that starts a
# file's path is its room.
ROOMS = {
    # The contract and the limits of its values; protoc makes the rest.
    "proto": ((), ("protobuf",)),
    "services/base": ((), ()),
    "services/statistics": (("services/base",), ()),
    "services/auth": (("services/base",), ()),
    "services/monitor": (("services/base",), ("prometheus", "boost")),
    "services/rpc": (("services/base", "services/auth", "services/monitor", "proto"), ("grpc", "protobuf", "prometheus", "boost")),
    "services/text": (("services/base",), ()),
    "services/data": (("services/base", "services/text"), ()),
    "services/data_view": (("services/base", "services/text", "services/data", "proto"), ("protobuf",)),
    "services/gateway": (
        ("services/base", "services/rpc", "services/auth", "services/monitor", "proto"),
        ("grpc", "protobuf", "prometheus", "boost"),
    ),
    "scheduler/core": (("services/base", "proto"), ("protobuf",)),
    "scheduler/store": (("services/base", "scheduler/core"), ("hiredis",)),
    "scheduler/server": (
        ("services/base", "services/rpc", "services/auth", "services/monitor", "services/text", "services/data", "services/data_view",
         "services/statistics", "scheduler/core", "scheduler/store", "proto"),
        ("grpc", "protobuf", "prometheus", "boost"),
    ),
    "worker/agent": (
        ("services/base", "services/rpc", "services/auth", "services/monitor", "services/statistics", "proto"),
        ("grpc", "protobuf", "prometheus", "boost"),
    ),
    "worker/kernels": (("services/base", "services/statistics"), ("libtorch",)),
    "worker/model": (("services/base", "services/text", "services/data", "worker/kernels"), ("libtorch",)),
    # Frames and specs are converted in files that hold no tensor: PROTO_ONLY.
    "worker/train": (
        ("services/base", "services/text", "services/data", "worker/kernels", "worker/model", "worker/evaluate", "proto"),
        ("libtorch", "protobuf"),
    ),
    "worker/serve": (
        ("services/base", "services/statistics", "services/text", "services/data", "worker/kernels", "worker/model", "worker/evaluate", "proto"),
        ("libtorch", "protobuf"),
    ),
    "worker/evaluate": (
        ("services/base", "services/statistics", "services/text", "services/data", "worker/kernels", "worker/model"),
        ("libtorch",),
    ),
    "client": (("services/base", "services/rpc", "services/text", "services/data", "services/data_view", "proto"), ("grpc", "protobuf", "boost")),
    "deploy/standalone": (("services/base", "services/auth"), ()),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def room_of(path):
    """The room that a repo path lies in, or None."""
    fitting = [room for room in ROOMS if path == room or path.startswith(room + "/")]
    return max(fitting, key=len, default=None)


def room_of_include(header):
    """The room of one of our own headers; generated ones belong to proto."""
    if re.match(r"dex/(v1|internal/v1)/\w+\.(grpc\.)?pb\.h$", header):
        return "proto"
    return room_of(header)


def library_of(header):
    for library, starts in LIBRARIES.items():
        if header.startswith(starts):
            return library
    return None


def faults_of(path, text):
    """Forbidden includes of one file, as sentences. `path` is relative to the repository."""
    room = room_of(path)
    if room is None:
        return []
    rooms, libraries = ROOMS[room]
    faults, seen = [], set()
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(1)
        other, library = room_of_include(header), library_of(header)
        if other == "proto" or library == "protobuf":
            seen.add("protobuf")
        if library == "libtorch":
            seen.add("libtorch")
        if other and other != room and other not in rooms:
            faults.append(f"{path}:{number}: {room} may not use {other} ({header})")
        if library and library not in libraries:
            faults.append(f"{path}:{number}: {room} may not use {library} ({header})")
    if {"protobuf", "libtorch"} <= seen:
        faults.append(f"{path}: protobuf and LibTorch headers in one file (performance.md §7)")
    return faults


def main():
    repository = Path(sys.argv[1])
    faults, files = [], 0
    for room in ROOMS:
        for file in sorted((repository / room).rglob("*")):
            if file.suffix in (".h", ".cc", ".cu", ".cuh") and "target" not in file.parts:
                files += 1
                faults += faults_of(str(file.relative_to(repository)), file.read_text(encoding="utf-8"))
    if files == 0:
        sys.exit("includes.py: found no source file; is the path right?")
    print("\n".join(sorted(set(faults))) or f"{files} files keep to their rooms")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
