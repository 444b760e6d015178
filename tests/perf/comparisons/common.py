"""What a comparison is made of: sides that are run, whom ours is held against, and bars."""

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class Refused(Exception):
    """A run failed, or two sides did not do the same work: there is no figure."""


@dataclass(frozen=True)
class Context:
    """Where things lie, and how long runs are."""

    bin: Path
    deps: Path
    scripts: Path  # the peers': ../shared/tools/peers
    threads: int
    quick: bool = False  # the shortest runs that still do everything

    @property
    def model(self):
        return self.deps / "models" / "smollm2-135m-instruct"

    @property
    def config(self):
        """The model's config.json; without a model {}: names are listed all the same."""
        path = self.model / "config.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def python(self):
        return self.deps / "peers" / "bin" / "python"

    def gguf(self, number_format):
        return self.deps / "models" / "gguf" / f"{number_format}.gguf"


@dataclass(frozen=True)
class Side:
    """A program that does the work and prints its figures, one JSON object. Sides of one comparison differ in their names."""

    name: str
    command: tuple
    probe: tuple = ()    # the same program on work whose answer is known; run once, before any timing
    needs: tuple = ()    # files without which it can't be run
    way_out: str = ""    # the command that makes them

    def absent(self):
        """Why it can't be run; empty: it can."""
        for path in self.needs:
            if not Path(path).exists():
                return f"{path} is not there; {self.way_out}"
        return ""


@dataclass(frozen=True)
class Bar:
    """`field` of a result is at least `bound`, or at most. The whole spread must be."""

    field: str
    bound: float
    at_most: bool = False

    def __str__(self):
        return f"{self.field} {'≤' if self.at_most else '≥'} {self.bound:g}"

    def verdict(self, figures):
        """figures: {field: (median, smallest, largest)}."""
        if self.field not in figures:
            return "not measured"
        _, low, high = figures[self.field]
        if self.at_most:
            return "met" if high <= self.bound else "missed" if low > self.bound else "unclear"
        return "met" if low >= self.bound else "missed" if high < self.bound else "unclear"


def verdicts(bars, figures):
    """{bar: verdict}. An entry of `bars` is a Bar, or a tuple of which one suffices."""
    found = {}
    for bar in bars:
        either = bar if isinstance(bar, tuple) else (bar,)
        said = [one.verdict(figures) for one in either]
        best = next(word for word in ("met", "unclear", "not measured", "missed") if word in said)
        found[" or ".join(str(one) for one in either)] = best
    return found


@dataclass(frozen=True)
class Rival:
    """Whom ours is held against: one side, or of several the best in each round."""

    name: str
    sides: tuple
    bars: tuple = ()

    def absent(self):
        return next((why for side in self.sides if (why := side.absent())), "")


def peer(context, name, script, options, probe=(), needs=(), way_out="deploy/setup/peers makes it"):
    """A side that is one of the peers' scripts."""
    program = (context.python, context.scripts / script)
    if not program[1].exists():
        way_out = "--peers names the folder of the peers' scripts"

    def command(words):
        return (*program, *words, "--json") if words else ()

    return Side(name, command(options), command(probe), (program[1], program[0], *needs), way_out)
