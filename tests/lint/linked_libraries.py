#!/usr/bin/env python3
"""What the programs load: services without LibTorch, trainer and engine without gRPC, Redis and a second OpenMP runtime.

usage: linked_libraries.py build/bin
"""

import subprocess
import sys
from pathlib import Path

# program → parts of library names that it must not load
FORBIDDEN = {
    "dex-gateway": ("libtorch", "libhiredis"),
    "dex-scheduler": ("libtorch",),
    "dex-worker": ("libtorch", "libhiredis"),
    "dexd": ("libtorch", "libhiredis", "libgrpc"),
    "dexctl": ("libtorch", "libhiredis"),
    "dex-trainer": ("libgrpc", "libhiredis", "libprometheus", "libgloo", "libibverbs"),
    "dex-engine": ("libgrpc", "libhiredis", "libprometheus"),
}
WITH_LIBTORCH = ("dex-trainer", "dex-engine")


def libraries_of(program):
    """Paths of the shared libraries that the loader finds for a program."""
    listing = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    return [line.split("=>")[-1].split("(")[0].strip() for line in listing.splitlines()]


def own_gloo(program):
    """Symbols of Gloo's that the program brings along.

    Its headers are of another version than the code in libtorch_cpu (worker/train/process_group_gloo.cc), and what a program defines
    wins over a library's own: a table of virtual functions from here would be used there.
    """
    listing = subprocess.run(["nm", "-C", "--defined-only", str(program)], check=True, capture_output=True, text=True).stdout
    own = ("gloo::", "vtable for gloo::", "vtable for c10d::ProcessGroupGloo", "typeinfo for gloo::")
    symbols = (line.split(" ", 2) for line in listing.splitlines())
    return [parts[2] for parts in symbols if len(parts) == 3 and parts[1] in "TVWBDu" and parts[2].startswith(own)]


def main():
    faults = [f"dex-trainer defines {symbol}" for symbol in own_gloo(Path(sys.argv[1]) / "dex-trainer")]
    for name, forbidden in FORBIDDEN.items():
        libraries = libraries_of(Path(sys.argv[1]) / name)
        faults += [f"{name} loads {library}" for library in libraries for part in forbidden if part in library]
        if "not found" in libraries:
            faults.append(f"{name}: a library is not found")
        if name in WITH_LIBTORCH:
            runtimes = [library for library in libraries if "gomp" in library or "libomp" in library]
            if len(runtimes) != 1 or "libtorch" not in runtimes[0]:
                faults.append(f"{name} must load LibTorch's own OpenMP runtime and no other, got {runtimes}")
    print("\n".join(faults) or f"{len(FORBIDDEN)} programs load only what they may")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
