#!/usr/bin/env python3
"""Numbers in the Redis scripts go out through string.format("%.0f"): Lua's own conversion keeps 14 digits (jobs.md §3, trap 4).

usage: lua_numbers.py FOLDER
Forbidden: tostring(), and joining with `..` a value that tonumber() made in the same expression. Every script starts with its
#!lua line, added at build time or here.
"""

import re
import sys
from pathlib import Path

TOSTRING = re.compile(r"\btostring\s*\(")
JOINED = re.compile(r"(\.\.\s*tonumber\s*\()|(tonumber\s*\([^()]*\)\s*\.\.)")


def main():
    folder = Path(sys.argv[1])
    scripts = sorted(folder.glob("*.lua"))
    if not scripts:
        sys.exit(f"lua_numbers.py: no script in {folder}")
    faults = []
    for script in scripts:
        for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), 1):
            code = line.split("--", 1)[0]
            if TOSTRING.search(code) or JOINED.search(code):
                faults.append(f"{script.name}:{number}: {line.strip()}")
    print("\n".join(faults) or f"{len(scripts)} scripts format their numbers")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
