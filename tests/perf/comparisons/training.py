"""train-kvo, train-lora, train-prefix."""

import sys

from comparisons.common import ROOT, Bar, Refused, Rival, Side, peer
from comparisons.rounds import Comparison, Limit, median_of
from comparisons.work import checksum, flop_per_token, token_rows

# Relative differences of a loss, ours against the peer's: in the first three steps (performance.md §11), and in any (method.md §10.20).
MOST_AT_FIRST, MOST_AT_ALL = 1e-4, 1e-3
FIRST = 3
ROWS_OF_A_PRODUCT = 512  # a micro-batch of the trainer


def sizes(context):
    """(rows, ids a row, measured steps, steps before them)"""
    return (1, 32, 1, 1) if context.quick else (2, 512, 4, 2)


def options(context):
    batch, length, steps, warmup = sizes(context)
    return ("--batch", batch, "--seq", length, "--steps", steps, "--warmup", warmup, "--threads", context.threads)


def ours(context, method, *more, name="ours"):
    return Side(name, (sys.executable, ROOT / "tests/perf/train", "--trainer", context.bin / "dex-trainer", "--model", context.model,
                       "--method", method, *options(context), *more))


def transformers(context, method):
    name = "transformers" if method == "dex" else "PEFT"
    return peer(context, name, "peer_train.py", ("--mode", method, "--model", context.model, *options(context)))


def limit(context, method):
    """The fastest matrix products that this machine has a library for, in the shapes of the step."""
    script = ROOT / "tests/perf/gemm_limit"
    words = ("--model", context.model, "--method", method, "--rows", ROWS_OF_A_PRODUCT, "--threads", context.threads)
    sides = tuple(Side(name, (context.python, script, "--library", library, *words), needs=(context.python,))
                  for name, library in (("MKL", "mkl"), ("OpenBLAS", "openblas")))
    return Limit(sides, flop_per_token(context.config, sizes(context)[1], method) if context.config else 1.0)


def difference(a, b, steps):
    """The largest relative difference of the first `steps` losses; with None of all."""
    if len(a) != len(b):
        raise Refused(f"one side did {len(a)} steps, the other {len(b)}")
    return max(abs(x / y - 1) for x, y in zip(a[:steps], b[:steps]))


def same_work(context, losses_compared):
    """The check of a comparison. losses_compared: of how many steps they must agree from the first on, None: all of them."""
    batch, length, steps, warmup = sizes(context)

    def check(entries):
        ours_runs = entries["ours"]
        expected = {"batch": batch, "seq": length, "threads": context.threads, "warmup": warmup, "steps": steps,
                    "tokens_crc32": checksum(token_rows(batch, length, context.config["vocab_size"]))}
        for side, runs in entries.items():
            for run in runs:
                for field, value in expected.items():
                    if run[field] != value:
                        raise Refused(f"{side} says {field} {run[field]}, {value} was asked for")
        worst = 0.0
        for side, runs in entries.items():
            if side == "ours" or losses_compared == 0:
                continue
            for own, other in zip(ours_runs, runs):
                if own["trained_parameters"] != other["trained_parameters"]:
                    raise Refused(f"ours trained {own['trained_parameters']} parameters, {side} {other['trained_parameters']}")
                first = FIRST if losses_compared is None else min(FIRST, losses_compared)
                for count, most in ((first, MOST_AT_FIRST), (losses_compared, MOST_AT_ALL)):
                    found = difference(own["loss"], other["loss"], count)
                    worst = max(worst, found)
                    if found > most:
                        where = "all steps" if count is None else f"the first {count} steps" if count > 1 else "the first step"
                        raise Refused(f"the losses of {where} differ by up to {found:.1e} of {side}'s, {most:g} are allowed: "
                                      "this is not the same work")
        return {"loss_difference": worst} if len(entries) > 1 and losses_compared != 0 else {}

    return check


def prefix_was_read(context):
    base = same_work(context, 0)

    def check(entries):
        for run in entries["ours"]:
            if not run["prefix_hits"]:
                raise Refused("ours read nothing from the prefix cache")
        return base(entries)

    return check


def comparisons(context):
    upper = max(1, context.config.get("num_hidden_layers", 0) // 2)
    whole = ours(context, "dex", name="ours, every layer")
    memory = Bar("rss_ratio", 0.4, at_most=True)
    return {
        "train-kvo": Comparison(
            "2×512 tokens, paper form, fp32, AdamW", ours(context, "dex"),
            (Rival("transformers", (transformers(context, "dex"),), ((Bar("ratio", 1.5), Bar("of_limit", 0.9)), memory)),),
            median_of("tok_s"), check=same_work(context, None), limit=limit(context, "dex")),
        # LoRA starts from random numbers, which are not the peer's; its other factor is 0 at first, so the first loss is the base's.
        "train-lora": Comparison(
            "the same with LoRA, r 8 on q, k, v, o", ours(context, "lora"),
            (Rival("PEFT", (transformers(context, "lora"),), (Bar("ratio", 1.4), memory)),),
            median_of("tok_s"), check=same_work(context, 1), limit=limit(context, "lora")),
        "train-prefix": Comparison(
            "train-kvo with the upper half of the layers adapted, from the second pass", ours(context, "dex", "--first-layer", upper),
            (Rival("ours, every layer", (whole,), (Bar("ratio", 2),)),),
            median_of("tok_s"), check=prefix_was_read(context)),
    }
