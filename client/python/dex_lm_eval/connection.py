"""What the harness needs of a platform: what a name means, log-probabilities of given tokens, generated tokens."""

import dataclasses
import json

import grpc
from dex_client import DexError, find_server
from dex_client._channel import metadata_of
from dex_client.v1 import adapters_pb2, adapters_pb2_grpc, inference_pb2, inference_pb2_grpc, models_pb2, models_pb2_grpc

LONGEST_GENERATION_SECONDS = 600  # api.md §1
CALL_SECONDS = 60

# A call that found nobody, or an adapter that is still loading, is repeated; every call here only reads.
_RETRIES = {"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 5, "initialBackoff": "0.5s", "maxBackoff": "5s", "backoffMultiplier": 3,
    "retryableStatusCodes": ["UNAVAILABLE"]}}]}


@dataclasses.dataclass(frozen=True)
class Served:
    """A base model or an adapter by the name that it is asked for."""

    name: str
    base: str
    is_adapter: bool
    context_length: int  # tokens of prompt and completion together
    tokenizer_sha256: str


@dataclasses.dataclass(frozen=True)
class Score:
    """Of one token after those before it: natural log-probability, and whether no other was likelier."""

    logprob: float
    likeliest: bool


class Platform:
    """One channel to the gateway. Calls block, may come from several threads, and raise DexError."""

    def __init__(self, server=None, timeout_seconds=LONGEST_GENERATION_SECONDS):
        if not 0 < timeout_seconds <= LONGEST_GENERATION_SECONDS:
            raise DexError(f"timeout_seconds must be above 0 and at most {LONGEST_GENERATION_SECONDS}, got "
                           f"{timeout_seconds}")
        found = find_server(server)
        self._address, self._origin = found.target, found.origin
        self._metadata = metadata_of(found)
        self._timeout = timeout_seconds
        # Proxies of the environment are for the internet, never for our own processes.
        self._channel = grpc.insecure_channel(self._address, options=[
            ("grpc.enable_http_proxy", 0), ("grpc.service_config", json.dumps(_RETRIES))])
        self._inference = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._models = models_pb2_grpc.ModelServiceStub(self._channel)
        self._adapters = adapters_pb2_grpc.AdapterServiceStub(self._channel)
        self._fingerprint = None

    def close(self):
        self._channel.close()

    def find(self, name):
        """The base model or adapter of this name."""
        base = self._base(name)
        adapter = None if base else self._call(self._adapters.GetAdapter, adapters_pb2.GetAdapterRequest(id=name),
                                               absent_is_none=True)
        if not base and not adapter:
            raise DexError(f"the platform at {self._address} has neither a base model nor an adapter named {name!r}; "
                           "dexctl models list and dexctl adapters list show what it has")
        base = base or self._base(adapter.base_model)
        if not base:
            raise DexError(f"{name} is an adapter of {adapter.base_model}, which the platform at {self._address} no "
                           "longer lists; put the model back into its models.json")
        return Served(name, base.name, adapter is not None, base.context_length, base.tokenizer_sha256)

    def score(self, served, ids, first):
        """The scores of ids[first:], first ≥ 1, in one forward pass."""
        reply = self._generate(served, inference_pb2.GenerateRequest(
            tokens=inference_pb2.TokenInput(ids=ids), max_tokens=0, echo=True, logprobs=1, temperature=0))
        entries = reply.logprobs
        if [entry.token_id for entry in entries] != ids:
            raise DexError(f"{served.name} was asked for the log-probabilities of {len(ids)} tokens and answered with "
                           f"{len(entries)} or others; dex-lm-eval and the platform are of different versions: install "
                           "client/python of the platform's own checkout")
        return [Score(entry.logprob, entry.top[0].token_id == entry.token_id) for entry in entries[first:]]

    def generate(self, served, ids, **sampling):
        """Token ids after `ids`; `sampling` is any field of GenerateRequest."""
        return list(self._generate(served, inference_pb2.GenerateRequest(
            tokens=inference_pb2.TokenInput(ids=ids), return_token_ids=True, **sampling)).token_ids)

    def _base(self, name):
        return self._call(self._models.GetModel, models_pb2.GetModelRequest(name=name), absent_is_none=True)

    def _generate(self, served, request):
        request.model = served.name
        request.timeout_seconds = self._timeout
        reply = self._call(self._inference.Generate, request, self._timeout + 5)
        # Numbers of two models must not end up in one table, whoever swapped them.
        if reply.HasField("adapter") != served.is_adapter or (served.is_adapter and reply.adapter.id != served.name):
            raise DexError(f"{served.name} was asked, {reply.adapter.id or reply.model} answered; name the adapter by "
                           "its own id")
        if self._fingerprint is None:
            self._fingerprint = reply.system_fingerprint
        if reply.system_fingerprint != self._fingerprint:
            raise DexError(f"{served.name} changed while it was evaluated ({self._fingerprint}, then "
                           f"{reply.system_fingerprint}); run the evaluation again")
        return reply

    def _call(self, method, request, seconds=CALL_SECONDS, absent_is_none=False):
        try:
            return method(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if absent_is_none and code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT):
                return None
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DexError(f"the platform at {self._address} did not answer within {seconds:g} s; give it more "
                               f"time with timeout_seconds=N (at most {LONGEST_GENERATION_SECONDS}), or fewer requests "
                               "at once with a smaller --batch_size") from error
            # An error of the platform itself carries its details; without them nobody was there.
            said_by_it = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
            if code is grpc.StatusCode.UNAVAILABLE and not said_by_it:
                raise DexError(f"nobody answers at {self._address}, named by {self._origin} ({details}); start dexd, or "
                               "name the platform with server=host:port or DEX_SERVER") from error
            raise DexError(f"the platform at {self._address} refused: {details} ({code.name})") from error
