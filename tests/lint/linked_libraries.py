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
    "dex-trainer": ("libgrpc", "libhiredis", "libprometheus"),
    "dex-engine": ("libgrpc", "libhiredis", "libprometheus"),
}
WITH_LIBTORCH = ("dex-trainer", "dex-engine")


def libraries_of(program):
    """Paths of the shared libraries that the loader finds for a program."""
    listing = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    return [line.split("=>")[-1].split("(")[0].strip() for line in listing.splitlines()]


def main():
    faults = []
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
