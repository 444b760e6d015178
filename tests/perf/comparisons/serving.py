"""prefill, prefill-512, decode-bf16, decode-int8, decode-int4, decode-f32, decode-8, decode-32."""

import json

from comparisons.common import ROOT, Bar, Refused, Rival, Side, peer
from comparisons.rounds import Comparison, median_of
from comparisons.work import checksum, token_rows

# The probe: the prompt "digits" of the golden values, on which transformers' greedy choice is at least 3.9 ahead of the second best,
# so that every number format makes the same tokens. The prompts that are timed are of no language: there a rounding decides.
PROBE = ROOT / "tests/perf/comparisons/probe.json"
PROBE_TOKENS = 8
LLAMA = {"f16": "llama.cpp F16", "q8_0": "llama.cpp Q8_0", "q4_0": "llama.cpp Q4_0"}


def known_answer():
    """The probe's ids, and what greedy decoding makes of them."""
    golden = json.loads((ROOT / "tests/data/golden/model.json").read_text())["cases"]["digits"]
    return golden["prompt"], golden["greedy"][:PROBE_TOKENS]


def work(context, batch, prompt, new, repeats=3):
    """Options that both sides take."""
    if context.quick:
        prompt, new, repeats = min(prompt, 16), min(new, 4), 1
    return {"batch": batch, "prompt_tokens": prompt, "new_tokens": new, "threads": context.threads, "repeats": repeats}


def words(settings):
    return tuple(word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), value))


def probe_settings(context, prompt):
    return {"batch": 1, "prompt_tokens": len(prompt), "new_tokens": PROBE_TOKENS, "threads": context.threads, "repeats": 1}


def ours(context, dtype, settings):
    program = (context.bin / "dex-engine", "measure", "--model", context.model, "--dtype", dtype)
    prompt, _ = known_answer()
    probe = (*program, *words(probe_settings(context, prompt)), "--tokens", ",".join(map(str, prompt)))
    return Side("ours", (*program, *words(settings)), probe)


def rival_side(context, name, engine, model, settings, **more):
    program = ("--engine", engine, "--model", model)
    probe = (*program, *words(probe_settings(context, known_answer()[0])), "--tokens", PROBE)
    return peer(context, name, "peer_infer.py", (*program, *words(settings)), probe, **more)


def transformers(context, settings):
    return rival_side(context, "transformers fp32", "hf", context.model, settings)


def llama(context, number_format, settings):
    file = context.gguf(number_format)
    return rival_side(context, LLAMA[number_format], "llama", file, settings, needs=(file,),
                      way_out="deploy/setup/peers --llama makes it")


def same_answers(probes):
    """Every side continues the probe as transformers did."""
    _, expected = known_answer()
    for side, entry in probes.items():
        if entry.get("unsupported"):
            continue
        if entry["generated"][:PROBE_TOKENS] != expected:
            raise Refused(f"{side} made the tokens {entry['generated'][:PROBE_TOKENS]} of the probe, {expected} is right: "
                          "this is not the same model")
    return {}


def leading_equal(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def same_work(context, dtype, settings):
    def check(entries):
        expected = {field: settings[field] for field in ("batch", "prompt_tokens", "new_tokens", "threads")}
        ids = checksum(token_rows(settings["batch"], settings["prompt_tokens"], context.config["vocab_size"]))
        for side, runs in entries.items():
            own = side == "ours"
            for run in runs:
                for field, value in (expected | ({"weights": dtype} if own else {"tokens_crc32": ids})).items():
                    if run[field] != value:
                        raise Refused(f"{side} says {field} {run[field]}, {value} was asked for")
                if own and run["generated"] != runs[0]["generated"]:
                    raise Refused("ours made other tokens in another run")
        made = entries["ours"][0]["generated"]
        same = {side: leading_equal(made, runs[0]["generated"]) for side, runs in entries.items() if side != "ours"}
        return {"same_tokens": same} if same else {}

    return check


def comparison(context, text, dtype, figure, rivals, batch=1, prompt=128, new=64):
    """rivals: a function that makes them of the settings."""
    settings = work(context, batch, prompt, new)
    return Comparison(text, ours(context, dtype, settings), rivals(settings), median_of(figure), check_probes=same_answers,
                      check=same_work(context, dtype, settings))


def comparisons(context):
    def best_of_all(settings):
        sides = (transformers(context, settings), *(llama(context, number_format, settings) for number_format in LLAMA))
        return (Rival("the best of transformers and llama.cpp", sides, (Bar("ratio", 1.1),)),)

    def only_llama(number_format, bound):
        return lambda settings: (Rival(LLAMA[number_format], (llama(context, number_format, settings),), (Bar("ratio", bound),)),)

    def only_transformers(settings):
        return (Rival("transformers fp32", (transformers(context, settings),)),)

    def both(settings):
        return (Rival("transformers fp32", (transformers(context, settings),), (Bar("ratio", 4),)),
                Rival(LLAMA["f16"], (llama(context, "f16", settings),), (Bar("ratio", 1.3),)))

    def decode(text, dtype, rivals, batch=1):
        return comparison(context, text, dtype, "decode_tok_s", rivals, batch)

    def prefill(tokens):
        return comparison(context, f"{tokens} tokens, bf16 weights", "bf16", "prefill_tok_s", best_of_all, prompt=tokens, new=2)

    return {
        "prefill": prefill(128),
        "prefill-512": prefill(512),
        "decode-bf16": decode("batch 1, bf16 weights", "bf16", only_llama("f16", 1.4)),
        "decode-int8": decode("batch 1, int8 weights", "int8", only_llama("q8_0", 1.4)),
        "decode-int4": decode("batch 1, int4 weights, the head in int8", "int4", only_llama("q4_0", 1.2)),
        "decode-f32": decode("batch 1, fp32 weights", "f32", only_transformers),
        "decode-8": decode("batch 8 in all, bf16 weights", "bf16", both, batch=8),
        "decode-32": decode("batch 32 in all, bf16 weights", "bf16", both, batch=32),
    }
