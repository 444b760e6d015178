"""What of docs/*.md is meant to be run: pure, no processes.

A fence's info line says what happens to it:

    ```sh run            run by bash; `ends=3` or `ends=0|7`: with which exit code (0); `needs=openai`: skipped without that package
    ```python save=a.py  written to that file of the page's folder (any language)
    ```text              right behind one that runs: lines of its output, in this order; … stands for anything

Everything else is for reading only.
"""

import dataclasses
import re

FENCE = re.compile(r"^(`{3,})(.*)$")
COMMAND = re.compile(r"\bdexctl\b(?!\.)")  # not a file like dexctl.1


class BadPage(Exception):
    """A page that can't be what its author meant; says where."""


@dataclasses.dataclass
class Block:
    page: str
    line: int  # of its opening fence, 1-based
    language: str
    options: dict
    text: str
    prose_between: bool = False  # something else than blank lines stands between it and the fence before

    @property
    def place(self):
        return f"{self.page}:{self.line}"


@dataclasses.dataclass
class Step:
    block: Block
    expected: list = dataclasses.field(default_factory=list)  # lines

    @property
    def exit_codes(self):
        return [int(code) for code in self.block.options.get("ends", "0").split("|")]


def blocks_of(page, text):
    """Every fenced block, in order."""
    found, opened, between = [], None, False
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None and fence:
            words = fence[2].split()
            options = dict(word.partition("=")[::2] for word in words[1:])
            opened = (fence[1], Block(page, number, words[0] if words else "", options, "", between))
        elif opened is not None and line.strip() == opened[0]:
            found.append(opened[1])
            opened, between = None, False
        elif opened is not None:
            opened[1].text += line + "\n"
        elif line.strip():
            between = True
    if opened is not None:
        raise BadPage(f"{opened[1].place}: the fence is never closed")
    return found


def plan_of(page, text):
    """What is done with a page: Blocks to save and Steps to run, in order."""
    plan, last = [], None
    for block in blocks_of(page, text):
        unknown = set(block.options) - {"run", "save", "ends", "needs"}
        if unknown:
            raise BadPage(f"{block.place}: {', '.join(sorted(unknown))} means nothing; there are run, save, ends, needs")
        if "save" in block.options:
            if not re.fullmatch(r"[a-z0-9_.-]+", block.options["save"]):
                raise BadPage(f"{block.place}: save wants the name of a file, got '{block.options['save']}'")
            plan.append(block)
        elif "run" in block.options:
            if block.language != "sh":
                raise BadPage(f"{block.place}: only sh is run, not {block.language}; save it and run it by sh")
            plan.append(last := Step(block))
            continue
        elif block.language == "text" and last is not None and not block.prose_between:
            last.expected = [line for line in block.text.splitlines() if line.strip()]
        last = None
    return plan


def squeezed(line):
    return " ".join(line.split())


def pattern_of(line):
    """… stands for anything, also for nothing; spaces count as one."""
    return re.compile(r"\s*".join(".*?".join(re.escape(word) for word in part.split("…")) for part in squeezed(line).split(" ")))


def missing_line(expected, output):
    """The first expected line that the output does not have behind those before it; None when all are there."""
    lines = iter([squeezed(line) for line in output.splitlines()])
    for wanted in expected:
        pattern = pattern_of(wanted)
        if wanted.strip() != "…" and not any(pattern.fullmatch(line) for line in lines):
            return wanted
    return None


def commands_of(text):
    """Each dexctl command line of a block, with its continuation lines, cut at pipes and other shell words."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        line = re.sub(r"\s#\s.*$|^#.*$", "", line)
        for found in COMMAND.finditer(line):
            yield re.split(r"[|;>]|&&|\)(?=\s*$)", line[found.end():])[0].strip()


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"")


def links_of(text):
    """Addresses of links and pictures outside fences."""
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [next(filter(None, found)) for found in LINK.findall(re.sub(r"`[^`\n]*`", "", bare))]


def anchors_of(text):
    """The names that GitHub gives to headings."""
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+\s+(.*)$", bare, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).strip().replace(" ", "-") for heading in headings}
