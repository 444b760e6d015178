"""Comparisons whose two sides are measured inside one run of one program, in turn there."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from comparisons.common import Bar, Side, verdicts
from comparisons.rounds import FEWEST_PAIRS, spread


@dataclass(frozen=True)
class Alone:
    """`ours` and `other` are figures of a run, `others` more of them by name; each may carry a bar. A run is a pair."""

    text: str
    side: Side
    peer_name: str
    unit: str
    ours: Callable[[dict], float]
    other: Callable[[dict], float]
    others: tuple[tuple[str, Callable[[dict], float]], ...] = ()
    bars: tuple[Bar, ...] = ()
    check: Callable[[list], None] = lambda runs: None  # raises Refused where the work was not done

    def lines(self, name, runner):
        if why := self.side.absent():
            return [{"name": name, "what": self.text, "peer": "no peer", "peer_name": self.peer_name, "way_out": why}]
        runs = [runner.run(name, self.side) for _ in range(runner.pairs)]
        self.check(runs)
        figures = {"ratio": spread([self.ours(run) / self.other(run) for run in runs])}
        figures |= {field: spread([figure(run) for run in runs]) for field, figure in self.others}
        result = {"name": name, "what": self.text, "unit": self.unit, "ours": round(statistics.median(map(self.ours, runs)), 3),
                  "peer": round(statistics.median(map(self.other, runs)), 3), "peer_name": self.peer_name}
        for field, values in figures.items():
            result |= dict(zip((field, f"{field}_min", f"{field}_max"), (round(value, 3) for value in values)))
        result |= {"pairs": len(runs), "rss_ours": max(run["peak_rss_mib"] for run in runs)}
        if self.bars and not runner.quick:
            judged = verdicts(self.bars, figures)
            result["bars"] = judged if len(runs) >= FEWEST_PAIRS else {bar: "too few pairs" for bar in judged}
        return [result | runner.facts(name, {"ours": runs})]


def field(*path):
    """The figure at this path of a run."""
    def figure(entry):
        for part in path:
            entry = entry[part]
        return entry
    return figure
