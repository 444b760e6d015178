"""What both kinds of channel share: options, metadata, stubs by service."""

from __future__ import annotations

from typing import Any

from ._address import Address
from .v1 import (adapters_pb2_grpc, admin_pb2_grpc, evaluation_pb2_grpc, files_pb2_grpc, finetuning_pb2_grpc,
                 inference_pb2_grpc, models_pb2_grpc)

TIMEOUT_SECONDS = 60.0  # of one call, repeats included; also for finding anybody to ask
GENERATION_SECONDS = 600.0  # of one generation, preview, checkpoint, upload, import, export or download (api.md §1)
PROBE_SECONDS = 300.0

OPTIONS: list[tuple[str, Any]] = [
    # Proxies of the environment are for the internet, never for our own processes.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200), ("grpc.min_reconnect_backoff_ms", 1000), ("grpc.max_reconnect_backoff_ms", 2000),
    # A server that died without a word is noticed, also by a watch that has nothing to say.
    ("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000), ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Which calls are made again is decided in one place, _policy.py.
    ("grpc.enable_retries", 0),
]


def metadata_of(address: Address) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {address.api_key}")] if address.api_key else []


class Stubs:
    """The services of dex.v1 on one channel, of either kind."""

    def __init__(self, channel: Any) -> None:
        self.jobs = finetuning_pb2_grpc.FineTuningServiceStub(channel)
        self.files = files_pb2_grpc.FileServiceStub(channel)
        self.adapters = adapters_pb2_grpc.AdapterServiceStub(channel)
        self.inference = inference_pb2_grpc.InferenceServiceStub(channel)
        self.evaluations = evaluation_pb2_grpc.EvaluationServiceStub(channel)
        self.models = models_pb2_grpc.ModelServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)
