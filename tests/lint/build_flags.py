#!/usr/bin/env python3
"""No target is compiled for this machine only, and none brings a second OpenMP runtime (performance.md §0, §7).

usage: build_flags.py compile_commands.json
"""

import json
import re
import sys
from pathlib import Path

FORBIDDEN = re.compile(r"(?<=\s)(-march=native|-mtune=native|-fopenmp|-ffast-math)(?=\s)")


def main():
    commands = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    faults = sorted({f"{entry['file']}: {match.group(1)}" for entry in commands for match in FORBIDDEN.finditer(entry["command"])})
    print("\n".join(faults) or f"{len(commands)} compiler calls, none for one machine only")
    sys.exit(1 if faults or not commands else 0)


if __name__ == "__main__":
    main()
