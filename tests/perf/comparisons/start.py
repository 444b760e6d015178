"""start: how long a program takes that makes two tokens, from exec to exit."""

import statistics

from comparisons import serving
from comparisons.common import Bar, Rival
from comparisons.rounds import Comparison, wall_seconds


def comparisons(context):
    # The shortest run of both: two times 16 ids in and 2 out. The probes before it have read both files into the page cache.
    settings = serving.work(context, batch=1, prompt=16, new=2, repeats=1)
    rival = Rival(serving.LLAMA["f16"], (serving.llama(context, "f16", settings),), (Bar("ratio", 1, at_most=True),))
    same_work = serving.same_work(context, "bf16", settings)

    def check(entries):
        # llama.cpp is reached through Python, whose own start is in its wall time and in ours is not: without it, and without our
        # dynamic linker, this is the time from the first own line to the first token of a measured run.
        inside = {side: round(statistics.median(run["load_s"] + run["ttft_s"]["median"] for run in runs), 3)
                  for side, runs in entries.items()}
        return same_work(entries) | {"load_and_first_token_s": inside}

    return {"start": Comparison("seconds from exec to exit of two runs of 16 tokens in and 2 out, bf16 weights, warm page cache",
                                serving.ours(context, "bf16", settings), (rival,), wall_seconds, unit="s", lower_is_better=True,
                                check_probes=serving.same_answers, check=check)}
