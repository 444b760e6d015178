"""What trains: speed, soundness, checkpoints, the machines."""

from panels import WORKER, dashboard, graph, heat, stat, steps, timeline

W = 'instance=~"$worker"'

DASHBOARD = dashboard(
    "dex-training",
    "DEX · Training",
    "How fast jobs train, whether their numbers are sound, and what checkpoints and disks do. Curves of a "
    "single job are its events: dexctl jobs watch, or the dashboard of the gateway.",
    [WORKER],
    [
        (
            "Now",
            [
                stat(
                    "Training speed",
                    "Tokens trained on per second, over all chosen workers.",
                    f"sum(instance:dex_train_tokens:rate1m{{{W}}})",
                    "short",
                    decimals=0,
                ),
                stat(
                    "Jobs running",
                    "Jobs whose trainer or evaluation is at work. All workers.",
                    'sum(pool_state:dex_jobs:max{state=~"running|validating_files"}) or vector(0)',
                ),
                stat(
                    "Skipped updates, 1 h",
                    "Updates with NaN or Inf in loss or gradient. Three in a row send a job back to its last good " "checkpoint.",
                    f"sum(increase(dex_train_nonfinite_total{{{W}}}[1h]))",
                    thresholds=steps((0.5, "red")),
                    decimals=0,
                ),
                stat(
                    "Lost checkpoints, 24 h",
                    "Checkpoints that could not be written, or not read back.",
                    f"sum(increase(dex_checkpoint_failures_total{{{W}}}[24h]))",
                    thresholds=steps((0.5, "red")),
                    decimals=0,
                ),
                stat(
                    "Trained, 24 h",
                    "Tokens trained on in the last 24 hours.",
                    f"sum(increase(dex_train_tokens_total{{{W}}}[24h]))",
                    decimals=1,
                ),
                stat(
                    "Least free disk",
                    "Free share of the fullest data directory. Below 10 %: alert DexDiskAlmostFull.",
                    f"min(dex_worker_disk_free_ratio{{{W}}})",
                    "percentunit",
                    {
                        "mode": "absolute",
                        "steps": [{"color": "red", "value": None}, {"color": "orange", "value": 0.1}, {"color": "green", "value": 0.2}],
                    },
                    decimals=0,
                ),
            ],
        ),
        (
            "Speed",
            [
                graph(
                    "Tokens per second",
                    "By worker; nothing while no job is in its training phase.",
                    [(f"instance:dex_train_tokens:rate1m{{{W}}}", "{{instance}}")],
                    "short",
                ),
                graph(
                    "Time of an update",
                    "Median and 95th percentile by worker. An update is one optimiser step over the whole batch.",
                    [
                        (f"instance:dex_train_step_seconds:p50_5m{{{W}}}", "{{instance}} median"),
                        (f"instance:dex_train_step_seconds:p95_5m{{{W}}}", "{{instance}} 95 %"),
                    ],
                    "s",
                ),
                heat(
                    "Time of an update, spread",
                    "Updates in each interval. Two bands are two kinds of jobs, or a machine that does something else.",
                    f"sum by (le) (increase(dex_train_step_seconds_bucket{{{W}}}[$__rate_interval]))",
                    width=24,
                ),
            ],
        ),
        (
            "Soundness",
            [
                graph(
                    "Updates skipped as not finite",
                    "By worker. More than a few: alert DexNonFiniteLoss; the job's events name step and cause.",
                    [(f"sum by (instance) (increase(dex_train_nonfinite_total{{{W}}}[$__rate_interval]))", "{{instance}}")],
                    bars=True,
                ),
                graph(
                    "Attempts that ended badly",
                    "crash: a signal or an unknown exit code; oom: tried once more with half the micro-batch; "
                    "disk_full: waits for room; worker_lost: the machine. All workers.",
                    [
                        (
                            'sum by (end) (increase(dex_job_attempts_total{end=~"crash|oom|disk_full|worker_lost|fail_retry|fail_final"}'
                            "[$__rate_interval])) > 0",
                            "{{end}}",
                        )
                    ],
                    stack=True,
                    bars=True,
                ),
            ],
        ),
        (
            "Checkpoints",
            [
                graph(
                    "Time to write and read back",
                    "95th percentile of the last hour. Dashed: alert DexCheckpointsSlow.",
                    [(f"instance:dex_checkpoint_write_seconds:p95_1h{{{W}}}", "{{instance}}")],
                    "s",
                    steps((60, "red")),
                    width=8,
                ),
                graph(
                    "Written",
                    "Bytes of checkpoints per second.",
                    [(f"sum by (instance) (rate(dex_checkpoint_bytes_total{{{W}}}[$__rate_interval]))", "{{instance}}")],
                    "Bps",
                    width=8,
                ),
                graph(
                    "Failures",
                    "Checkpoints that could not be written or read back. Any: alert DexCheckpointsFailing.",
                    [(f"sum by (instance) (increase(dex_checkpoint_failures_total{{{W}}}[$__rate_interval]))", "{{instance}}")],
                    bars=True,
                    width=8,
                ),
            ],
        ),
        (
            "Machines",
            [
                timeline(
                    "State of each worker",
                    "What a worker says of itself. out_of_service: its device or a base model is broken; disk_full: too "
                    "little room to claim a job.",
                    f'max by (worker) (dex_worker_state{{{W},state="up"}} * 1 or dex_worker_state{{{W},state="draining"}} * 2 '
                    f'or dex_worker_state{{{W},state="disk_full"}} * 3 or dex_worker_state{{{W},state="out_of_service"}} * 4)',
                    "{{worker}}",
                    {1: ("up", "green"), 2: ("draining", "yellow"), 3: ("disk full", "orange"), 4: ("out of service", "red")},
                    width=8,
                ),
                graph(
                    "Free disk",
                    "Free share of the file system of the data directory. Dashed: alert DexDiskAlmostFull, below 10 %.",
                    [(f"dex_worker_disk_free_ratio{{{W}}}", "{{instance}}")],
                    "percentunit",
                    {"mode": "absolute", "steps": [{"color": "red", "value": None}, {"color": "green", "value": 0.1}]},
                    top=1,
                    width=8,
                ),
                graph(
                    "Since the last answered heartbeat",
                    "Dashed: alert DexWorkerHeartbeatOld. Jobs go on meanwhile, their leases may not.",
                    [(f"instance:dex_worker_heartbeat_age_seconds:max{{{W}}}", "{{instance}}")],
                    "s",
                    steps((60, "red")),
                    width=8,
                ),
            ],
        ),
    ],
)
