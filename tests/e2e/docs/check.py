#!/usr/bin/env python3
"""docs/*.md by themselves: fences closed, what runs is shell, links and pictures lead somewhere, every page is linked from the first.

usage: check.py REPOSITORY
Prints one line a fault and exits 1, or a count and exits 0.
"""

import pathlib
import subprocess
import sys

import pages


def link_faults(page, root, text):
    for link in pages.links_of(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page.relative_to(root)}: {link} leads nowhere"
        elif anchor and target.suffix == ".md" and anchor not in pages.anchors_of(target.read_text(encoding="utf-8")):
            yield f"{page.relative_to(root)}: {link}: {target.name} has no heading of that name"


def step_faults(page, root, text):
    try:
        plan = pages.plan_of(str(page.relative_to(root)), text)
    except pages.BadPage as fault:
        yield str(fault)
        return
    for step in plan:
        if isinstance(step, pages.Step):
            read = subprocess.run(["bash", "-n"], input=step.block.text, text=True, capture_output=True, check=False)
            if read.returncode:
                yield f"{step.block.place}: bash can't read it: {read.stderr.strip()}"


def faults(root):
    found = sorted((root / "docs").glob("*.md"))
    if not found:
        yield "docs has no pages"
    texts = {page: page.read_text(encoding="utf-8") for page in found}
    index = texts.get(root / "docs/README.md", "")
    for page, text in texts.items():
        yield from step_faults(page, root, text)
        yield from link_faults(page, root, text)
        if page.name != "README.md" and page.name not in pages.links_of(index):
            yield f"docs/README.md does not link {page.name}"
    if "docs/README.md" not in pages.links_of((root / "README.md").read_text(encoding="utf-8")):
        yield "README.md does not link docs/README.md"
    for picture in (root / "docs").rglob("*"):
        if picture.suffix in (".png", ".svg") and picture.stat().st_size > 100_000:
            yield f"{picture.relative_to(root)} has {picture.stat().st_size} bytes; 100000 are allowed"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    found = list(faults(root))
    print("\n".join(found) if found else f"{len(list((root / 'docs').glob('*.md')))} pages, nothing to complain about")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
