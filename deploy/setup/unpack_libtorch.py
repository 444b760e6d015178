#!/usr/bin/env python3
"""Unpacks from wheels what C++ needs of LibTorch: OUT/include and OUT/lib."""

import argparse
import shutil
import sys
import zipfile
from pathlib import Path, PurePosixPath

INCLUDE = "torch/include/"
LIBRARIES = {"libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_global_deps.so", "libgomp.so.1",
             "libcudart.so.13", "libcupti.so.13"}


def target(name):
    """Where a wheel's file goes, below OUT; None: not needed."""
    if name.startswith(INCLUDE):
        return Path("include", name[len(INCLUDE):])
    if PurePosixPath(name).name in LIBRARIES:
        return Path("lib", PurePosixPath(name).name)
    return None


def unpack(wheel, out):
    found = set()
    for info in wheel.infolist():
        place = target(info.filename)
        if info.is_dir() or place is None:
            continue
        path = out / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with wheel.open(info) as source, open(path, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        path.chmod(info.external_attr >> 16 & 0o777 or 0o644)
        found.add(path.name)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("wheels", nargs="+", type=Path)
    args = parser.parse_args()
    found = set()
    for path in args.wheels:
        with zipfile.ZipFile(path) as wheel:
            found |= unpack(wheel, args.out)
    if missing := LIBRARIES - found:
        sys.exit(f"unpack_libtorch.py: the wheels have no {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
