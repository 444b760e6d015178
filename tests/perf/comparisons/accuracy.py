"""accuracy-bf16, accuracy-int8, accuracy-int4: what a number format costs in perplexity, on real text."""

import math
import statistics
from dataclasses import dataclass, field

from comparisons.common import Bar, Context, Refused, Side, verdicts

TEXTS = ("code", "long_text", "multilingual")
EXACT = "f32"
MOST = {"bf16": 1.001, "int8": 1.005, "int4": 1.05}


def side(context, text, dtype):
    tokens, width = (256, 128) if context.quick else (20000, 1024)
    return Side(f"{dtype} on {text}", (
        context.bin / "dex-engine", "evaluate", "perplexity", "--model", context.model, "--file",
        context.deps / "data" / f"{text}.validation.jsonl", "--max-tokens", tokens, "--context-length", width, "--stride", width // 2,
        "--dtype", dtype, "--threads", context.threads, "--json"))


def perplexity(entry, what):
    rows = [row["value"] for row in entry["rows"] if row["metric"] == "perplexity" and row["subject"] == "base" and not row["dims"]]
    if not entry["complete"] or len(rows) != 1:
        raise Refused(f"{what} measured no perplexity of the whole text")
    return rows[0]


@dataclass
class Accuracy:
    """A number format against fp32, both ours. Nothing here is random: each text is read once, and its ratio is a pair's."""

    context: Context
    dtype: str
    exact: dict = field(default_factory=dict)  # {text: entry} of fp32, shared by the formats of one call

    @property
    def text(self):
        return f"perplexity with {self.dtype} weights over that in fp32, {len(self.texts())} texts"

    def texts(self):
        return TEXTS[:1] if self.context.quick else TEXTS

    def lines(self, name, runner):
        entries = {self.dtype: [], EXACT: []}
        found = {}
        for text in self.texts():
            if text not in self.exact:
                self.exact[text] = runner.run(name, side(self.context, text, EXACT))
            entries[EXACT].append(self.exact[text])
            entries[self.dtype].append(runner.run(name, side(self.context, text, self.dtype)))
            found[text] = tuple(perplexity(entries[one][-1], f"{name}, {one} on {text},") for one in (self.dtype, EXACT))
        ratios = [ours / exact for ours, exact in found.values()]
        mean = [math.exp(statistics.fmean(math.log(pair[place]) for pair in found.values())) for place in (0, 1)]
        rss = [max(entry["peak_rss_mib"] for entry in entries[one]) for one in (self.dtype, EXACT)]
        result = {"name": name, "what": self.text, "unit": "perplexity", "ours": round(mean[0], 4), "peer": round(mean[1], 4),
                  "peer_name": "ours, fp32", "ratio": round(statistics.median(ratios), 5), "ratio_min": round(min(ratios), 5),
                  "ratio_max": round(max(ratios), 5), "pairs": len(ratios), "rss_ours": rss[0], "rss_peer": rss[1],
                  "texts": {text: {self.dtype: round(ours, 4), EXACT: round(exact, 4)} for text, (ours, exact) in found.items()}}
        if not self.context.quick:
            # On every text, so the largest ratio is judged.
            result["bars"] = verdicts((Bar("ratio_max", MOST[self.dtype], at_most=True),), {"ratio_max": (max(ratios),) * 3})
        return [result | runner.facts(name, entries)]


def comparisons(context):
    exact = {}
    return {f"accuracy-{dtype}": Accuracy(context, dtype, exact) for dtype in MOST}
