"""gateway, sse-200: what the gateway adds to a call, and to a token of many streams, before a backend that costs nothing. queue: the
scheduler's rate at Redis."""

import sys

from comparisons.alone import Alone, field
from comparisons.common import ROOT, Bar, Side


def program(context, *words):
    return Side("ours", (context.bin.parent / "tests" / "perf_gateway", "--gateway", context.bin / "dex-gateway", *words))


def comparisons(context):
    calls = ("--calls", 100, "--ms", 100, "--in-flight", 8, "--connections", 2) if context.quick else ()
    streams = ("--streams", 8, "--tokens", 5, "--pace-ms", 20) if context.quick else ()
    queue = Side("ours", (sys.executable, ROOT / "tests/perf/queue", "--test", context.bin.parent / "tests" / "scheduler_scale_test",
                          *(("--short",) if context.quick else ())))
    return {
        "queue": Alone(
            "claims and finishes a second of one shard with everysec, 8 workers", queue, "redis-benchmark, INCR", "/s", field("everysec"),
            field("redis_incr_s"), tuple((name, field(name)) for name in ("everysec", "always", "always_two_shards", "everysec_two_shards")),
            (Bar("everysec", 2000), Bar("always", 1000))),
        "gateway": Alone(
            "a unary call of 100 bytes through the gateway; 1 in flight for the time, 64 for the rate", program(context, "unary", *calls),
            "the same call without the gateway", "µs", field("through_p50_us"), field("direct_p50_us"),
            (("added_p50_us", field("added_p50_us")), ("unary_s", field("unary_s")), ("gateway_cores", field("gateway_cores"))),
            (Bar("added_p50_us", 150, at_most=True), Bar("unary_s", 15000))),
        "sse-200": Alone(
            "time a token of 200 streams of server-sent events at 20 tokens a second each, the gateway on one core",
            program(context, "streams", *streams), "as many gRPC streams without the gateway", "ms", field("sse", "token_ms"),
            field("grpc", "token_ms"),
            (("gateway_us_a_token", field("gateway_us_a_token")), ("longest_gap_ms", field("sse", "longest_gap_ms"))),
            (Bar("ratio", 1.1, at_most=True),)),
    }
