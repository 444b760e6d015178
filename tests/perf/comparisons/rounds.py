"""Ours and its rivals in turn, and what comes of it."""

import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from comparisons import process
from comparisons.common import Refused, Rival, Side, verdicts

FEWEST_PAIRS = 5  # below, no bar is judged
MOST_OTHER_CORES = 0.1


def median_of(field):
    """The figure of a run that says {field: {median, …}}."""
    return lambda entry: entry[field]["median"]


def wall_seconds(entry):
    return entry["wall_s"]


def spread(values):
    return statistics.median(values), min(values), max(values)


@dataclass(frozen=True)
class Limit:
    """What no program can go beyond: sides that measure GFLOP/s of matrix products, of which the best in a round counts."""

    sides: tuple
    flop: float  # of a unit of the comparison's figure

    def figure(self, entry):
        return entry["gflops"]["median"] * 1e9 / self.flop


@dataclass(frozen=True)
class Comparison:
    text: str
    ours: Side
    rivals: tuple[Rival, ...]  # a line of results each
    figure: Callable[[dict], float]
    unit: str = "tok/s"
    lower_is_better: bool = False
    # Of the probes' outputs, {side: entry}, before anything is timed; of all runs, {side: [entry, …]}, and the rivals' sides: raises
    # Refused where the work was not the same, returns fields of the result. Runs of ours alone are looked at too.
    check_probes: Callable[[dict], dict] = lambda probes: {}
    check: Callable[[dict], dict] = lambda entries: {}
    limit: Limit | None = None

    def lines(self, name, runner):
        """The results, one a rival."""
        if runner.ours_only:
            return [ours_alone(name, self, runner)]
        absent = {rival.name: rival.absent() for rival in self.rivals}
        present = [rival for rival in self.rivals if not absent[rival.name]]
        found = {}
        if present:
            limits = self.limit.sides if self.limit and not any(side.absent() for side in self.limit.sides) else ()
            sides = {side.name: side for side in (self.ours, *(side for rival in present for side in rival.sides), *limits)}
            said = self.check_probes({side.name: runner.run(name, side, side.probe) for side in sides.values() if side.probe})
            entries, unsupported = in_rounds(name, list(sides.values()), runner)
            said |= self.check({side: runs for side, runs in entries.items() if side not in {one.name for one in limits}})
            for rival in present:
                absent[rival.name] = next((unsupported[side.name] for side in rival.sides if side.name in unsupported), "")
                if not absent[rival.name]:
                    found[rival.name] = against(name, self, rival, entries, bool(limits), runner) | said | runner.facts(name, entries)
        return [found.get(rival.name) or no_peer(name, self, rival.name, absent[rival.name]) for rival in self.rivals]


@dataclass
class Runner:
    machine: dict
    pairs: int = FEWEST_PAIRS
    ours_only: bool = False
    quick: bool = False
    limit_s: float = process.RUN_LIMIT_S
    log: object = sys.stderr

    def run(self, name, side, command=()):
        return process.run(command or side.command, f"{name}, {side.name}", self.limit_s)

    def facts(self, name, entries):
        """What every result says of how it was made. entries: {side: [entry, …]}."""
        runs = [entry for several in entries.values() for entry in several]
        other = round(sum(run["other_s"] for run in runs) / sum(run["wall_s"] for run in runs), 2)
        if other > MOST_OTHER_CORES:
            print(f"compare: warning: {name}: other programs kept {other:.2f} cores busy; on a busy machine only the ratios mean something",
                  file=self.log)
        versions = {}
        for run in runs:
            versions |= run.get("versions", {})
        command = f"tests/perf/compare {name} " + ("--quick" if self.quick else f"--pairs {self.pairs}")
        return {"other_cores": other, **self.machine, "versions": versions, "command": command + " --ours-only" * self.ours_only}


def in_rounds(name, sides, runner):
    """A B C C B A …: {side: its runs}, and of sides that can't do the work {side: why}."""
    entries, unsupported = {side.name: [] for side in sides}, {}
    for number in range(runner.pairs):
        for side in sides if number % 2 == 0 else reversed(sides):
            if side.name in unsupported:
                continue
            entry = runner.run(name, side)
            if "unsupported" in entry:
                unsupported[side.name] = entry["unsupported"]
            else:
                entries[side.name].append(entry)
    return {side: runs for side, runs in entries.items() if side not in unsupported}, unsupported


def peak(runs):
    return max(run["peak_rss_mib"] for run in runs)


def against(name, comparison, rival, entries, with_limit, runner):
    """The result against one rival: the n-th runs make the n-th pair."""
    ours = [comparison.figure(entry) for entry in entries[comparison.ours.name]]
    theirs = {side.name: [comparison.figure(entry) for entry in entries[side.name]] for side in rival.sides}
    best = min if comparison.lower_is_better else max
    best_sides = [best(theirs, key=lambda side, n=number: theirs[side][n]) for number in range(len(ours))]
    peers = [theirs[side][number] for number, side in enumerate(best_sides)]
    usual = Counter(best_sides).most_common(1)[0][0]
    ratios = [a / b for a, b in zip(ours, peers, strict=True)]
    rss_ours, rss_peer = peak(entries[comparison.ours.name]), peak(entries[usual])
    figures = {"ratio": spread(ratios), "rss_ratio": (rss_ours / rss_peer,) * 3}
    result = {"name": name, "what": comparison.text, "unit": comparison.unit, "ours": round(statistics.median(ours), 3),
              "peer": round(statistics.median(peers), 3), "peer_name": rival.name if len(theirs) == 1 else f"{rival.name}: {usual}"}
    if len(theirs) > 1:
        result["peers"] = {side: round(statistics.median(values), 3) for side, values in theirs.items()}
    result |= dict(zip(("ratio", "ratio_min", "ratio_max"), (round(value, 3) for value in figures["ratio"])))
    result |= {"pairs": len(ours), "rss_ours": rss_ours, "rss_peer": rss_peer, "rss_ratio": round(rss_ours / rss_peer, 3)}
    if with_limit:
        limit = comparison.limit
        rates = [[limit.figure(entry) for entry in entries[side.name]] for side in limit.sides]
        bounds = [max(round_) for round_ in zip(*rates)]
        figures["of_limit"] = spread([a / b for a, b in zip(ours, bounds, strict=True)])
        result |= {"gemm_gflops": {side.name: round(statistics.median(entry["gflops"]["median"] for entry in entries[side.name]), 1)
                                   for side in limit.sides},
                   "limit": round(statistics.median(bounds), 1)}
        result |= dict(zip(("of_limit", "of_limit_min", "of_limit_max"), (round(value, 3) for value in figures["of_limit"])))
    if rival.bars:
        judged = verdicts(rival.bars, figures)
        result["bars"] = judged if len(ours) >= FEWEST_PAIRS else {bar: "too few pairs" for bar in judged}
    return result


def ours_alone(name, comparison, runner):
    """Shows that ours runs and that the harness reads it; says nothing of speed against anybody."""
    said = {}
    if comparison.ours.probe:
        said |= comparison.check_probes({comparison.ours.name: runner.run(name, comparison.ours, comparison.ours.probe)})
    entries, unsupported = in_rounds(name, [comparison.ours], runner)
    if unsupported:
        raise Refused(f"{name}: {unsupported[comparison.ours.name]}")
    said |= comparison.check(entries)
    runs = entries[comparison.ours.name]
    return {"name": name, "what": comparison.text, "unit": comparison.unit,
            "ours": round(statistics.median(comparison.figure(entry) for entry in runs), 3), "peer": "not asked", "pairs": len(runs),
            "rss_ours": peak(runs), **said, **runner.facts(name, entries)}


def no_peer(name, comparison, peer_name, why):
    return {"name": name, "what": comparison.text, "peer": "no peer", "peer_name": peer_name, "way_out": why}
