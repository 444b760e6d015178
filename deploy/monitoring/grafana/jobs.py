"""The queue and what becomes of jobs."""

from panels import POOL, dashboard, graph, heat, stat, steps

P = 'pool=~"$pool"'

DASHBOARD = dashboard(
    "dex-jobs",
    "DEX · Jobs and queue",
    "What waits, what runs, how it ended, and whether the queue itself is sound.",
    [POOL],
    [
        (
            "Now",
            [
                stat(
                    "Waiting",
                    "Jobs that are queued, in the pools chosen above.",
                    f'sum(pool_state:dex_jobs:max{{state="queued",{P}}}) or vector(0)',
                    thresholds=steps((50, "orange")),
                ),
                stat(
                    "In progress",
                    "Jobs that a worker holds, also those that are being paused or cancelled.",
                    f"sum(pool:dex_jobs_in_progress:sum{{{P}}}) or vector(0)",
                ),
                stat(
                    "Oldest ready job",
                    "How long the job that could be served now and has waited longest has been ready. "
                    "Orange above 10 minutes, red above 6 hours (alert DexOldestJobTooOld).",
                    f"max(pool:dex_queue_oldest_ready_seconds:max{{{P}}})",
                    "s",
                    steps((600, "orange"), (21600, "red")),
                ),
                stat(
                    "Workers up",
                    "Workers that beat and take jobs. A worker of two pools counts in each.",
                    f"sum(pool:dex_workers_up:max{{{P}}}) or vector(0)",
                    thresholds={"mode": "absolute", "steps": [{"color": "red", "value": None}, {"color": "green", "value": 1}]},
                ),
                stat(
                    "Claims, 10 min",
                    "Jobs handed to workers in the last ten minutes.",
                    f"sum(pool:dex_job_claims:increase10m{{{P}}})",
                    decimals=0,
                ),
                stat(
                    "Failed, 1 h",
                    "Share of the jobs of the last hour that failed through the platform: poison, out of memory, lost workers, "
                    "internal errors. What its user can mend does not count. All pools.",
                    "sum(kind:dex_job_failures:increase1h) / (sum(kind_outcome:dex_job_finishes:increase1h) > 0) or vector(0)",
                    "percentunit",
                    steps((0.1, "orange"), (0.5, "red")),
                    decimals=0,
                ),
            ],
        ),
        (
            "Queue",
            [
                graph(
                    "Jobs by state",
                    "Jobs that are not finished, by public state.",
                    [(f"sum by (state) (pool_state:dex_jobs:max{{{P}}})", "{{state}}")],
                    stack=True,
                ),
                graph(
                    "Oldest ready job",
                    "By pool. It grows steadily while all workers are busy, and falls when the job is claimed. Dashed: "
                    "6 hours, alert DexOldestJobTooOld.",
                    [(f"pool:dex_queue_oldest_ready_seconds:max{{{P}}}", "{{pool}}")],
                    "s",
                    steps((21600, "red")),
                ),
                heat(
                    "Time in the queue",
                    "Jobs claimed in each interval, by how long they had waited since their place in the queue. All pools.",
                    "sum by (le) (increase(dex_queue_wait_seconds_bucket[$__rate_interval]))",
                ),
                graph(
                    "Time in the queue, of the last hour",
                    "Half of the jobs waited less than the median, one in twenty longer than the " "95th percentile.",
                    [("dex_queue_wait_seconds:p50_1h", "median"), ("dex_queue_wait_seconds:p95_1h", "95 %")],
                    "s",
                ),
            ],
        ),
        (
            "How jobs end",
            [
                graph(
                    "Jobs finished",
                    "Jobs that became terminal in each interval: succeeded, cancelled, expired, or the error code.",
                    [(f"sum by (outcome) (increase(dex_job_finishes_total{{{P}}}[$__rate_interval])) > 0", "{{outcome}}")],
                    stack=True,
                    bars=True,
                ),
                graph(
                    "Attempts ended",
                    "A job has several attempts when its worker is lost, drained or out of memory. worker_lost: its lease ran "
                    "out; release: given back on purpose, which costs no retry.",
                    [(f"sum by (end) (increase(dex_job_attempts_total{{{P}}}[$__rate_interval])) > 0", "{{end}}")],
                    stack=True,
                    bars=True,
                ),
                graph(
                    "Submissions",
                    "By what was answered. replayed: the same request_id again; quota: the tenant's queue is full; refused: a "
                    "bad request.",
                    [("sum by (outcome) (increase(dex_job_submits_total[$__rate_interval])) > 0", "{{outcome}}")],
                    stack=True,
                    bars=True,
                ),
                graph(
                    "Failed through the platform",
                    "Share of the finished jobs of the last hour, by kind. Dashed: alert DexJobsFailing.",
                    [("kind:dex_job_failures:ratio1h", "{{kind}}")],
                    "percentunit",
                    steps((0.5, "red")),
                    top=1,
                ),
                heat(
                    "Time of an attempt",
                    "Attempts that ended in each interval, by how long they ran.",
                    "sum by (le) (increase(dex_job_run_seconds_bucket[$__rate_interval]))",
                ),
                graph(
                    "Time of an attempt, of the last hour",
                    "Median and 95th percentile over all kinds of jobs.",
                    [("dex_job_run_seconds:p50_1h", "median"), ("dex_job_run_seconds:p95_1h", "95 %")],
                    "s",
                ),
            ],
        ),
        (
            "Leases and the store",
            [
                graph(
                    "Leases lost",
                    "Leases that ran out, because a worker died or could not reach a scheduler. Its job goes on elsewhere.",
                    [("sum(increase(dex_lease_lost_total[$__rate_interval]))", "leases lost")],
                    bars=True,
                    width=8,
                ),
                graph(
                    "Late finishes, refused",
                    "Workers that finished an attempt they no longer owned. Nothing of it is published.",
                    [("sum(increase(dex_stale_finish_total[$__rate_interval]))", "late finishes")],
                    bars=True,
                    width=8,
                ),
                graph(
                    "Since the last sweep",
                    "Sweeps notice dead workers and due jobs, every 5 s. Dashed: alert DexSweepStopped.",
                    [("dex_reaper_last_sweep_age_seconds:min", "age")],
                    "s",
                    steps((60, "red")),
                    width=8,
                ),
            ],
        ),
    ],
)
