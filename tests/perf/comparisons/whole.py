"""ttft, sse: the whole platform with the real model, as clients of its HTTP door see it."""

import sys

from comparisons.alone import Alone, field
from comparisons.common import ROOT, Bar, Side


def side(context, what, *words):
    return Side("ours", (sys.executable, ROOT / "tests/perf/serve_load", what, "--bin", context.bin, "--deps", context.deps, *words))


def comparisons(context):
    short = ("--prompt-tokens", 16, "--new-tokens", 4) if context.quick else ()
    load = (*short, *(("--unloaded", 2, "--seconds", 1, "--requests", 4) if context.quick else ()))
    turns = (*short, *(("--turns", 1) if context.quick else ()))
    return {
        "ttft": Alone(
            "time to the first token, p99: 96 tokens in, 64 out, Poisson arrivals at 70 % of what the platform can answer; no peer's "
            "server is among deploy/setup/peers", side(context, "ttft", *load), "ours unloaded, median", "s", field("loaded_p99_s"),
            field("unloaded_median_s"),
            (("loaded_median_s", field("loaded_median_s")), ("saturation_requests_s", field("saturation_requests_s"))),
            (Bar("ratio", 4, at_most=True),)),
        "sse": Alone(
            "time a token of one stream of server-sent events, 64 tokens", side(context, "sse", *turns), "gRPC through the same gateway",
            "s", field("http_token_s"), field("grpc_token_s"), (), (Bar("ratio", 1.1, at_most=True),)),
    }
