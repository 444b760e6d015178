"""Whether the platform itself is well: alerts, doors, store, processes."""

from panels import dashboard, graph, stat, steps, table, timeline

UP = {0: ("down", "red"), 1: ("up", "green")}
YES = {0: ("no", "red"), 1: ("yes", "green")}

DASHBOARD = dashboard(
    "dex-health",
    "DEX · Platform health",
    "Alerts, the gateway's door, Redis and the processes. Start here when something is wrong.",
    [],
    [
        (
            "Now",
            [
                stat(
                    "Alerts firing",
                    "Of this platform. What to do about each: deploy/monitoring/runbook.md.",
                    'count(ALERTS{alertname=~"Dex.*",alertstate="firing"}) or vector(0)',
                    thresholds=steps((1, "red")),
                    width=3,
                ),
                stat(
                    "Schedulers up",
                    "Schedulers that can be scraped.",
                    'sum(up{job="dex-scheduler"})',
                    width=3,
                    thresholds={"mode": "absolute", "steps": [{"color": "red", "value": None}, {"color": "green", "value": 1}]},
                ),
                stat(
                    "Gateways up",
                    "Gateways that can be scraped.",
                    'sum(up{job="dex-gateway"})',
                    width=3,
                    thresholds={"mode": "absolute", "steps": [{"color": "red", "value": None}, {"color": "green", "value": 1}]},
                ),
                stat(
                    "Workers up",
                    "Workers that can be scraped.",
                    'sum(up{job="dex-worker"})',
                    width=3,
                    thresholds={"mode": "absolute", "steps": [{"color": "red", "value": None}, {"color": "green", "value": 1}]},
                ),
                stat("Redis answers", "To at least one scheduler.", "max(dex_redis_up)", mappings=YES, width=3, graph=False),
                stat(
                    "Redis keeps all",
                    "AOF on, every write synced, nothing evicted, as every scheduler sees it. Else new jobs are refused.",
                    "min(dex_redis_durable)",
                    mappings=YES,
                    width=3,
                    graph=False,
                ),
                stat(
                    "Redis memory",
                    "Of its maxmemory. Above 80 %: alert DexRedisFull.",
                    "max(dex_redis_memory_ratio)",
                    "percentunit",
                    steps((0.6, "orange"), (0.8, "red")),
                    width=3,
                    decimals=0,
                ),
                stat(
                    "Errors at the door",
                    "Share of requests that the platform failed (HTTP 5xx), last 5 minutes.",
                    "(dex_gateway_errors:ratio5m >= 0) or vector(0)",
                    "percentunit",
                    steps((0.01, "orange"), (0.05, "red")),
                    width=3,
                    decimals=1,
                ),
            ],
        ),
        (
            "Alerts",
            [
                table(
                    "Firing",
                    "Alerts that hold now.",
                    'ALERTS{alertname=~"Dex.*",alertstate="firing"}',
                    {
                        "alertname": "Alert",
                        "severity": "Severity",
                        "job": "Process",
                        "instance": "Instance",
                        "pool": "Pool",
                        "script": "Script",
                    },
                    height=7,
                ),
                timeline(
                    "What can be scraped", "Each process, by job and instance.", 'up{job=~"dex-.*"}', "{{job}} {{instance}}", UP, height=7
                ),
            ],
        ),
        (
            "Gateway",
            [
                graph(
                    "Requests by code",
                    "gRPC's codes; HTTP requests are counted here too. Refusals of the gateway itself: next panel.",
                    [("sum by (code) (rate(dex_gateway_requests_total[$__rate_interval]))", "{{code}}")],
                    "reqps",
                    stack=True,
                    width=8,
                ),
                graph(
                    "Refused at the door",
                    "By reason, before anything reached scheduler or worker.",
                    [("sum by (reason) (rate(dex_gateway_rejected_total[$__rate_interval]))", "{{reason}}")],
                    "reqps",
                    stack=True,
                    width=8,
                ),
                graph(
                    "Errors of the platform",
                    "Share of all requests. Dashed: alert DexGatewayErrors.",
                    [("dex_gateway_errors:ratio5m", "errors")],
                    "percentunit",
                    steps((0.05, "red")),
                    width=8,
                ),
                graph(
                    "Time of calls, 99 %",
                    "The slowest ten methods of all processes; watches, claims, transfers and generations are left out.",
                    [("topk(10, job_method:dex_rpc_duration_seconds:p99_5m >= 0)", "{{job}} {{method}}")],
                    "s",
                    width=16,
                ),
                graph(
                    "Age of the routes",
                    "Since the gateway last knew its routes to be the scheduler's. Dashed: alert DexSnapshotStale; inference "
                    "goes on with the last ones.",
                    [("instance:dex_gateway_snapshot_age_seconds:max", "{{instance}}")],
                    "s",
                    steps((60, "red")),
                    width=8,
                ),
            ],
        ),
        (
            "Store",
            [
                graph(
                    "Calls",
                    "To Redis, by script or command.",
                    [("sum by (script) (rate(dex_redis_call_duration_seconds_count[$__rate_interval]))", "{{script}}")],
                    "ops",
                    width=8,
                ),
                graph(
                    "Time of a call, 99 %",
                    "With every write synced to the disk. Dashed: alert DexRedisSlow.",
                    [("script:dex_redis_call_duration_seconds:p99_5m >= 0", "{{script}}")],
                    "s",
                    steps((0.25, "red")),
                    width=8,
                ),
                graph(
                    "Failed calls",
                    "noscript is none: a script that Redis forgot is loaded and called again.",
                    [("sum by (class) (rate(dex_redis_errors_total[$__rate_interval]))", "{{class}}")],
                    "ops",
                    width=8,
                ),
                graph(
                    "Memory",
                    "Of maxmemory. Dashed: alert DexRedisFull.",
                    [("max(dex_redis_memory_ratio)", "used")],
                    "percentunit",
                    steps((0.8, "red")),
                    top=1,
                    width=8,
                ),
                graph(
                    "Repairs",
                    "Entries of the store that disagreed with their jobs. There should be none.",
                    [("sum(increase(dex_reconcile_fixes_total[$__rate_interval]))", "repairs")],
                    bars=True,
                    width=8,
                ),
                graph(
                    "Workers by state",
                    "As the schedulers count them; one of two pools counts in each.",
                    [("sum by (state) (max by (pool, state) (dex_workers))", "{{state}}")],
                    stack=True,
                    width=8,
                ),
            ],
        ),
        (
            "Processes",
            [
                graph(
                    "Time since start",
                    "A line that falls to nought is a restart. More than two within half an hour: alert DexProcessRestarting.",
                    [("time() - dex_process_start_timestamp_seconds", "{{job}} {{instance}}")],
                    "s",
                ),
                table(
                    "Versions",
                    "What runs where. Two versions at once are fine during an update.",
                    "dex_build_info",
                    {"job": "Process", "instance": "Instance", "version": "Version", "commit": "Commit"},
                ),
            ],
        ),
    ],
)
