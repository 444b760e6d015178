"""The platform, seen from one asyncio program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from .._address import find_server
from .._channel import GENERATION_SECONDS, TIMEOUT_SECONDS
from .._requests import Messages, generation, tokenization
from ..v1 import admin_pb2, inference_pb2, models_pb2
from ._adapters import Adapters
from ._catalog import Models, Presets
from ._evaluations import Evaluations
from ._files import Files
from ._generation import Stream
from ._jobs import Jobs
from ._link import Link
from ._operations import Operations


class Client:
    """One channel to a platform; every call has a deadline and raises DexError. Make and use it inside one running
    event loop.

    server: host:port; else as dexctl finds it: DEX_SERVER, a local dexd's endpoints.json, localhost:50051. api_key: else
    DEX_API_KEY, or the admin.key of that dexd. timeout: seconds of one call, repeats included; generations, previews,
    uploads and downloads have 10 minutes. Calls that found nobody are made again within that time, as the platform asks for
    it (RetryInfo); each call that changes something carries a request_id, so it has one effect.
    """

    def __init__(self, server: str | None = None, api_key: str | None = None, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._link = Link(find_server(server, api_key), timeout)
        self.files = Files(self._link)
        self.jobs = Jobs(self._link, self.files)
        self.adapters = Adapters(self._link)
        self.models = Models(self._link)
        self.presets = Presets(self._link)
        self.evaluations = Evaluations(self._link)
        self.operations = Operations(self._link)

    @overload
    async def chat(self, model: str, messages: Messages, *, stream: Literal[True], **sampling: Any) -> Stream: ...
    @overload
    async def chat(self, model: str, messages: Messages, *, stream: Literal[False] = ...,
                   **sampling: Any) -> inference_pb2.GenerateResponse: ...
    async def chat(self, model: str, messages: Messages, *, stream: bool = False, **sampling: Any) -> Any:
        """An answer by the model's chat template. model: a base model or an adapter id. messages: [{"role", "content"}, …],
        or the text of one user's message. `sampling` is any other field of GenerateRequest: max_tokens, temperature, seed,
        dex_lambda_scale … stream=True: a Stream of pieces of text."""
        return await self.generate(model, messages=messages, stream=stream, **sampling)

    @overload
    async def complete(self, model: str, prompt: str, *, stream: Literal[True], **sampling: Any) -> Stream: ...
    @overload
    async def complete(self, model: str, prompt: str, *, stream: Literal[False] = ...,
                       **sampling: Any) -> inference_pb2.GenerateResponse: ...
    async def complete(self, model: str, prompt: str, *, stream: bool = False, **sampling: Any) -> Any:
        """What follows a text; otherwise as chat()."""
        return await self.generate(model, prompt=prompt, stream=stream, **sampling)

    async def generate(self, model: str, *, prompt: str | None = None, messages: Messages | None = None,
                 tokens: Sequence[int] | None = None, stream: bool = False, **sampling: Any) -> Any:
        """chat() and complete() in one, and of token ids: a GenerateResponse, or with stream=True a Stream."""
        request = generation(model, prompt, messages, tokens, **sampling)
        seconds = request.timeout_seconds + 5 if request.HasField("timeout_seconds") else GENERATION_SECONDS
        stub = self._link.stubs.inference
        if stream:
            return Stream(self._link.stream(stub.GenerateStream, request, seconds))
        return await self._link.call(stub.Generate, request, seconds)

    async def tokenize(self, model: str, text: str | None = None, *, messages: Messages | None = None,
                       adapter: str | None = None, add_special_tokens: bool | None = None) -> inference_pb2.TokenizeResponse:
        """The ids that a generation would read of a text, or of a chat through the model's template up to where the answer
        begins. Made by a worker that serves the model."""
        return await self._link.call(self._link.stubs.inference.Tokenize, tokenization(
            model, text, messages, adapter=adapter, add_special_tokens=add_special_tokens))

    async def detokenize(self, model: str, ids: Sequence[int], *, adapter: str | None = None) -> str:
        """The text of token ids; special tokens are written out."""
        reply: inference_pb2.DetokenizeResponse = await self._link.call(
            self._link.stubs.inference.Detokenize, inference_pb2.DetokenizeRequest(model=model, adapter=adapter, ids=ids))
        return reply.text

    async def tokenizer_info(self, model: str, *, adapter: str | None = None) -> inference_pb2.TokenizerInfo:
        """Special tokens, chat template and hash of the tokenizer, for programs that tokenise by themselves."""
        return await self._link.call(self._link.stubs.inference.GetTokenizerInfo,
                                     inference_pb2.GetTokenizerInfoRequest(model=model, adapter=adapter))

    async def capabilities(self) -> models_pb2.ServerCapabilities:
        """Version, methods, presets, limits."""
        return await self._link.call(self._link.stubs.models.GetServerCapabilities,
                               models_pb2.GetServerCapabilitiesRequest())

    async def health(self) -> admin_pb2.Health:
        """The platform examined just now, and what it can promise as it is set up."""
        return await self._link.call(self._link.stubs.admin.GetHealth, admin_pb2.GetHealthRequest())

    async def close(self) -> None:
        await self._link.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Client({self._link.address.target!r}, named by {self._link.address.origin})"
