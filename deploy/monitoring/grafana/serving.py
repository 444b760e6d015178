"""What answers: latency, throughput, room, adapters."""

from panels import WORKER, dashboard, graph, heat, stat, steps, table

W = 'instance=~"$worker"'


def quantile(q, name):
    return f"histogram_quantile({q}, sum by (instance, le) (rate({name}_bucket{{{W}}}[5m])))"


DASHBOARD = dashboard(
    "dex-serving",
    "DEX · Serving",
    "How fast requests are answered, how full the engines are, and which adapters they hold.",
    [WORKER],
    [
        (
            "Now",
            [
                stat(
                    "Generated",
                    "Tokens of answers per second. Counted when a request ends.",
                    f"sum(instance:dex_infer_generation_tokens:rate1m{{{W}}})",
                    decimals=1,
                    width=3,
                ),
                stat("Running", "Requests in the engines' batches.", f"sum(dex_infer_requests_running{{{W}}})", width=3),
                stat(
                    "Waiting",
                    "Requests that wait for a place in a batch.",
                    f"sum(dex_infer_requests_waiting{{{W}}})",
                    thresholds=steps((1, "orange"), (32, "red")),
                    width=3,
                ),
                stat(
                    "First token, 99 %",
                    "Of the slowest worker, last 5 minutes. Above 10 s: alert DexFirstTokenSlow.",
                    f"max(instance:dex_infer_time_to_first_token_seconds:p99_5m{{{W}}} >= 0)",
                    "s",
                    steps((3, "orange"), (10, "red")),
                    width=3,
                    no_value="no requests",
                ),
                stat(
                    "KV cache",
                    "Used share of the fullest engine's.",
                    f"max(dex_infer_kv_cache_usage_ratio{{{W}}})",
                    "percentunit",
                    steps((0.8, "orange"), (0.95, "red")),
                    width=3,
                    decimals=0,
                ),
                stat("Adapters loaded", "Ready to answer, over all chosen workers.", f"sum(dex_infer_adapters_loaded{{{W}}})", width=3),
                stat(
                    "Errors",
                    "Share of all requests at the gateway that the platform failed (HTTP 5xx), last 5 minutes.",
                    "(dex_gateway_errors:ratio5m >= 0) or vector(0)",
                    "percentunit",
                    steps((0.01, "orange"), (0.05, "red")),
                    width=3,
                    decimals=1,
                ),
                stat(
                    "Engine restarts, 24 h",
                    "Engine processes that died and were started again.",
                    f"sum(increase(dex_engine_restarts_total{{{W}}}[24h]))",
                    thresholds=steps((0.5, "orange"), (3, "red")),
                    width=3,
                    decimals=0,
                ),
            ],
        ),
        (
            "Latency",
            [
                graph(
                    "Time to the first token",
                    "From arrival at the worker: queue, adapter, prompt. Dashed: alert DexFirstTokenSlow.",
                    [
                        (f"instance:dex_infer_time_to_first_token_seconds:p50_5m{{{W}}}", "{{instance}} median"),
                        (f"instance:dex_infer_time_to_first_token_seconds:p99_5m{{{W}}}", "{{instance}} 99 %"),
                    ],
                    "s",
                    steps((10, "red")),
                ),
                graph(
                    "Time between tokens",
                    "Of one request. It grows with the batch.",
                    [
                        (f"instance:dex_infer_inter_token_latency_seconds:p50_5m{{{W}}}", "{{instance}} median"),
                        (f"instance:dex_infer_inter_token_latency_seconds:p99_5m{{{W}}}", "{{instance}} 99 %"),
                    ],
                    "s",
                ),
                heat(
                    "Whole answers",
                    "Requests that ended in each interval, by how long they took.",
                    f"sum by (le) (increase(dex_infer_request_duration_seconds_bucket{{{W}}}[$__rate_interval]))",
                ),
                graph(
                    "Waiting for a place in the batch",
                    "Median and 99th percentile.",
                    [
                        (quantile(0.5, "dex_infer_queue_duration_seconds"), "{{instance}} median"),
                        (quantile(0.99, "dex_infer_queue_duration_seconds"), "{{instance}} 99 %"),
                    ],
                    "s",
                ),
            ],
        ),
        (
            "Throughput",
            [
                graph(
                    "Tokens per second",
                    "Of requests when they end: prompts read, answers written.",
                    [
                        (f"instance:dex_infer_prompt_tokens:rate1m{{{W}}}", "{{instance}} prompts"),
                        (f"instance:dex_infer_generation_tokens:rate1m{{{W}}}", "{{instance}} answers"),
                    ],
                    "short",
                ),
                graph(
                    "Requests by their end",
                    "stop: end of sequence or a stop string; length: max_tokens; cancelled: the client left; error: refused "
                    "or failed.",
                    [(f"sum by (finished_reason) (increase(dex_infer_requests_total{{{W}}}[$__rate_interval]))", "{{finished_reason}}")],
                    stack=True,
                    bars=True,
                ),
            ],
        ),
        (
            "Room",
            [
                graph(
                    "Requests",
                    "In the batch, and waiting for it.",
                    [(f"sum(dex_infer_requests_running{{{W}}})", "running"), (f"sum(dex_infer_requests_waiting{{{W}}})", "waiting")],
                    stack=True,
                ),
                graph(
                    "KV cache in use",
                    "Fullest engine of each worker. Dashed: alert DexKvCacheFull, if requests wait as well.",
                    [(f"dex_infer_kv_cache_usage_ratio{{{W}}}", "{{instance}}")],
                    "percentunit",
                    steps((0.95, "red")),
                    top=1,
                ),
            ],
        ),
        (
            "Adapters",
            [
                graph(
                    "Adapters loaded",
                    "By where they lie.",
                    [(f"sum by (instance, tier) (dex_infer_adapters_loaded{{{W}}})", "{{instance}} {{tier}}")],
                    width=8,
                ),
                graph(
                    "Memory of adapters",
                    "A folded adapter with projections of its own takes as much as those of its base.",
                    [(f"sum by (instance, tier) (dex_infer_adapter_bytes{{{W}}})", "{{instance}} {{tier}}")],
                    "bytes",
                    width=8,
                ),
                graph(
                    "Adapters that could not be loaded",
                    "Other base, other tokenizer, damaged file. Any: alert DexAdapterLoadFailing; the worker's "
                    "log and GetAdapter say why.",
                    [(f"sum by (instance) (increase(dex_infer_adapter_load_failures_total{{{W}}}[$__rate_interval]))", "{{instance}}")],
                    bars=True,
                    width=8,
                ),
                graph(
                    "Time to load",
                    "95th percentile of the last hour.",
                    [
                        (
                            f"histogram_quantile(0.95, sum by (instance, le) (rate(dex_infer_adapter_load_seconds_bucket{{{W}}}[1h])))",
                            "{{instance}}",
                        )
                    ],
                    "s",
                    width=8,
                ),
                graph(
                    "Engine restarts",
                    "More than two within 15 minutes: alert DexEngineRestarting.",
                    [(f"sum by (instance) (increase(dex_engine_restarts_total{{{W}}}[$__rate_interval]))", "{{instance}}")],
                    bars=True,
                    width=8,
                ),
                table(
                    "Adapters that requests are for",
                    "What a router of the Gateway API inference extension sees: adapters with requests that get "
                    "tokens, and with requests that still wait.",
                    f"vllm:lora_requests_info{{{W}}}",
                    {
                        "instance": "Worker",
                        "max_lora": "In a batch at most",
                        "running_lora_adapters": "Running",
                        "waiting_lora_adapters": "Waiting",
                    },
                    width=8,
                ),
            ],
        ),
    ],
)
