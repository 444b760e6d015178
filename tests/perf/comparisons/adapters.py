"""adapters-paper, adapters-branch, adapters-branch-folded: a batch in which every sequence has an adapter of its own."""

import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from comparisons import serving
from comparisons.common import ROOT, Bar, Context, Refused, Rival, Side, peer
from comparisons.rounds import Comparison
from comparisons.work import checksum, token_rows

ONE = "ours, one adapter"
PEFT = "PEFT, LoRA of rank 8"


def decoding(entry):
    """Tokens a second; the peer tells them for each number of adapters, and was asked for one number."""
    return (entry["runs"][0] if "runs" in entry else entry)["decode_tok_s"]["median"]


@dataclass(frozen=True)
class Adapters:
    """Adapters of random weights are made for a call and go with it: what they weigh is what counts."""

    context: Context
    text: str
    form: str      # of make_adapters
    count: int     # of adapters, and of sequences
    prompt: int
    new: int
    bar: float | None        # against ours with one adapter
    apart: bool = False      # ours computes the branches beside W_O
    peft: bool = False
    one_reply: bool = False  # with one adapter for all, the first sequence makes the same tokens

    def sequences(self):
        return min(self.count, 4) if self.context.quick else self.count

    def settings(self):
        return serving.work(self.context, self.sequences(), self.prompt, self.new)

    def ours(self, folder, distinct, *more, name="ours"):
        return Side(name, (self.context.bin / "dex-engine", "measure", "--model", self.context.model, "--dtype", "bf16", "--adapters",
                           folder, "--distinct", distinct, *more, *serving.words(self.settings())))

    def rivals(self, folder):
        found = [Rival(ONE, (self.ours(folder, 1, name=ONE),), (Bar("ratio", self.bar),) if self.bar else ())]
        if self.peft:
            number = self.sequences()
            side = peer(self.context, PEFT, "peer_multi_adapter.py",
                        ("--model", self.context.model, "--adapters", number, *serving.words(self.settings())))
            found.append(Rival(PEFT, (side,), (Bar("ratio", 5),)))
        return tuple(found)

    def comparison(self, folder):
        ours = self.ours(folder, self.sequences(), *(("--branch-apart",) if self.apart else ()))
        return Comparison(self.text, ours, self.rivals(folder), decoding, check=self.check)

    def check(self, entries):
        settings = self.settings()
        expected = {field: settings[field] for field in ("batch", "prompt_tokens", "new_tokens", "threads")}
        ids = checksum(token_rows(settings["batch"], settings["prompt_tokens"], self.context.config["vocab_size"]))
        adapters = {"ours": {"adapters": self.sequences()}, ONE: {"adapters": 1}, PEFT: {"tokens_crc32": ids}}
        for side, runs in entries.items():
            for run in runs:
                for field, value in (expected | adapters[side]).items():
                    if run[field] != value:
                        raise Refused(f"{side} says {field} {run[field]}, {value} was asked for")
        if self.one_reply and ONE in entries:
            made = [entries[side][0]["generated"] for side in ("ours", ONE)]
            if made[0] != made[1]:
                raise Refused(f"the first sequence made {made[0]} beside other adapters and {made[1]} beside its own")
        return {"adapter_mib": round(entries["ours"][0]["adapter_bytes"] / 2**20, 1)}

    def lines(self, name, runner):
        with tempfile.TemporaryDirectory(prefix="dex-perf-") as scratch:
            folder = Path(scratch) / "adapters"
            done = subprocess.run([sys.executable, ROOT / "tests/perf/make_adapters", "--form", self.form, "--count",
                                   str(self.sequences()), "--model", self.context.model, "--out", folder], capture_output=True, text=True)
            if done.returncode != 0:
                raise Refused(f"no adapters could be made: {done.stderr.strip()}")
            return self.comparison(folder).lines(name, runner)


def comparisons(context):
    # 16 ids in and 9 out, as the peer has it, whose batch takes a second a step.
    branch = Adapters(context, "64 sequences in all, a branch of its own beside W_O for each; one adapter: folded", "branch", 64, 16, 9,
                      bar=0.7, apart=True, peft=True)
    return {
        "adapters-paper": Adapters(context, "8 sequences in all, a paper-form adapter for each, bf16", "paper", 8, 128, 64, bar=0.6,
                                   one_reply=True),
        "adapters-branch": branch,
        "adapters-branch-folded": replace(branch, text="the same, each branch folded into a W_O of its own, as an agent's engine has them",
                                          bar=None, apart=False, peft=False, one_reply=True),
    }
