"""A platform made of answers that a test chooses: real gRPC on a free loopback port, no state of its own."""

from concurrent import futures

import grpc
from dex_client.rpc import error_details_pb2, status_pb2
from dex_client.v1 import (adapters_pb2_grpc, admin_pb2_grpc, evaluation_pb2_grpc, files_pb2_grpc, finetuning_pb2_grpc,
                           inference_pb2_grpc, models_pb2_grpc)

SERVICES = {"FineTuningService": finetuning_pb2_grpc, "FileService": files_pb2_grpc, "AdapterService": adapters_pb2_grpc,
            "InferenceService": inference_pb2_grpc, "EvaluationService": evaluation_pb2_grpc, "ModelService": models_pb2_grpc,
            "AdminService": admin_pb2_grpc}


def abort(context, code, reason, message="no", retry_seconds=None, violations=(), **metadata):
    """Ends the call as the platform does: google.rpc details by their real type names."""
    details = [("ErrorInfo", error_details_pb2.ErrorInfo(reason=reason, domain="dex", metadata=metadata))]
    if violations:
        details.append(("BadRequest", error_details_pb2.BadRequest(field_violations=[
            {"field": field, "description": description} for field, description in violations])))
    if retry_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(retry_seconds * 1e9))
        details.append(("RetryInfo", retry))
    status = status_pb2.Status(code=code.value[0], message=message)
    for name, detail in details:
        packed = status.details.add(value=detail.SerializeToString())
        packed.type_url = f"type.googleapis.com/google.rpc.{name}"
    context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
    context.abort(code, message)


class FakePlatform:
    """answers: by RPC name a function (request or iterator of them, context) → reply or iterator. `calls` keeps what was
    asked, (RPC, request, metadata), streams as lists. Use with `with`."""

    def __init__(self, **answers):
        self.answers, self.calls = answers, []
        self._port = 0
        self._server = None

    @property
    def address(self):
        return f"127.0.0.1:{self._port}"

    def requests(self, name):
        return [request for called, request, _ in self.calls if called == name]

    def start(self):
        """Again on the port of before, when it was stopped."""
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        for name, module in SERVICES.items():
            servicer = type(name, (getattr(module, f"{name}Servicer"),), {
                rpc: self._answering(rpc) for rpc in self.answers if hasattr(getattr(module, f"{name}Servicer"), rpc)})
            getattr(module, f"add_{name}Servicer_to_server")(servicer(), self._server)
        self._port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        self._server.start()

    def stop(self):
        self._server.stop(None).wait()

    def _answering(self, rpc):
        def method(_, request, context):
            self.calls.append((rpc, request, dict(context.invocation_metadata())))
            return self.answers[rpc](request, context)
        return method

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
