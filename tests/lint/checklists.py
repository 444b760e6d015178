#!/usr/bin/env python3
"""tests/checklists.md names every feature and complaint of api.md once, and only tests that there are.

usage: checklists.py REPOSITORY

A row is | id | what | `Test` `Test` … | nothing, "missing", "missing: …" or "partly: …" |. Tests are `Suite.Name` of GoogleTest,
`file.py::test` of Python, or a name of ctest. Says how many rows are shown, partly shown and missing. Exit code 1, and a line for
each fault.
"""

import re
import sys
from pathlib import Path

IDS = [f"F{number:02}" for number in range(1, 96)] + [f"C{number:02}" for number in range(1, 45)]
GOOGLE_TEST = re.compile(r"^\s*TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
CTEST = re.compile(r"^\s*(?:add_test\(NAME|dex_test\(NAME|dex_fuzz\(\s*NAME)\s+(\w+)", re.MULTILINE)
ROW = re.compile(r"\|\s*([FC]\d+)\b")
NAMES = re.compile(r"`([^`]+)`")
STATES = re.compile(r"missing(: .+)?|partly: .+")


def tests_of(root):
    """The names of every test below tests/."""
    found = set()
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix in (".cc", ".h"):
            found |= {f"{suite}.{name}" for suite, name in GOOGLE_TEST.findall(path.read_text(encoding="utf-8"))}
        elif path.suffix == ".py":
            found |= {f"{path.name}::{name}" for name in PYTHON_TEST.findall(path.read_text(encoding="utf-8"))}
        elif path.name == "CMakeLists.txt":
            found |= set(CTEST.findall(path.read_text(encoding="utf-8")))
    return found


def row_faults(subject, cells, known):
    """What is wrong with one row: of cells there are id, what, tests, what is lacking."""
    if len(cells) != 4:
        return [f"{subject}: four cells are needed, found {len(cells)}"]
    _, what, shown, lacking = cells
    names = NAMES.findall(shown)
    faults = [f"{subject}: there is no test {name}" for name in names if name not in known]
    faults += [f"{subject}: {name} stands twice" for name in sorted(set(names)) if names.count(name) > 1]
    if not what:
        faults.append(f"{subject} doesn't say what it is")
    if NAMES.sub("", shown).strip():
        faults.append(f"{subject}: only tests in backquotes may stand in the third cell, found {NAMES.sub('', shown).strip()!r}")
    if lacking and not STATES.fullmatch(lacking):
        faults.append(f"{subject}: the last cell must be empty, 'missing', 'missing: …' or 'partly: …', found {lacking!r}")
    elif bool(names) == lacking.startswith("missing"):
        faults.append(f"{subject} is 'missing' and has tests" if names else f"{subject} has no test: it is 'missing'")
    return faults


def check(text, known):
    """Faults of the lists, and how many rows are shown, partly shown and missing."""
    faults, found = [], []
    counts = {"shown": 0, "partly": 0, "missing": 0}
    for line in text.splitlines():
        row = ROW.match(line)
        if not row:
            continue
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        found.append(row[1])
        faults += row_faults(row[1], cells, known)
        state = cells[-1].partition(":")[0]
        counts[state if state in counts else "shown"] += 1
    faults += [f"{subject} is not there" for subject in IDS if subject not in found]
    faults += [f"{subject} is there {found.count(subject)} times" for subject in sorted(set(found)) if found.count(subject) > 1]
    faults += [f"{subject} is none of api.md's" for subject in sorted(set(found) - set(IDS))]
    if not faults and found != IDS:
        faults.append("the rows are not in the order of api.md")
    return faults, counts


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    faults, counts = check((root / "tests/checklists.md").read_text(encoding="utf-8"), tests_of(root))
    print(f"{len(IDS)} rows: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    for fault in faults:
        print(f"checklists: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
