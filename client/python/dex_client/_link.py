"""Calls over a blocking channel: deadlines, repeats and errors. Its twin is aio/_link.py; both ask _policy.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import grpc

from ._address import Address
from ._channel import GENERATION_SECONDS, OPTIONS, Stubs, metadata_of
from ._errors import DexError, from_rpc
from ._policy import Follow, Patience


class Link:
    """One channel to the gateway. Thread-safe; calls block and raise DexError."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address, self.timeout = address, timeout
        self._channel = grpc.insecure_channel(address.target, options=OPTIONS)
        self._metadata = metadata_of(address)
        self.stubs = Stubs(self._channel)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: Any, request: Any, seconds: float | None = None) -> Any:
        """The reply. `request` is a message, or for a stream of them a function that makes the stream anew for each try."""
        patience = self._patience(seconds)
        while True:
            sent = request() if callable(request) else request
            try:
                return method(sent, timeout=patience.left(), metadata=self._metadata)
            except grpc.RpcError as error:
                failure, cause = self._explained(error), error
            self._wait_or_raise(patience, failure, cause)

    def stream(self, method: Any, request: Any, seconds: float | None = None) -> Iterator[Any]:
        """The messages of a reply; tried again as long as none has come. Closing the iterator cancels the call."""
        patience = self._patience(seconds)
        while True:
            begun = False
            call = method(request, timeout=patience.left(), metadata=self._metadata)
            try:
                for message in call:
                    begun = True
                    yield message
                return
            except grpc.RpcError as error:
                failure, cause = self._explained(error), error
            finally:
                call.cancel()
            if begun:
                raise failure from cause
            self._wait_or_raise(patience, failure, cause)

    def download(self, method: Any, request: Any, out: IO[bytes]) -> None:
        """Writes the chunks of a reply; from the beginning again after a connection that broke."""
        patience = self._patience(GENERATION_SECONDS)
        while True:
            out.seek(0)
            out.truncate()
            call = method(request, timeout=patience.left(), metadata=self._metadata)
            try:
                for message in call:
                    out.write(message.chunk)
                out.flush()
                return
            except grpc.RpcError as error:
                failure, cause = self._explained(error), error
            finally:
                call.cancel()
            self._wait_or_raise(patience, failure, cause)

    def watch(self, method: Any, request_after: Callable[[int], Any], after: int, timeout: float | None) -> Iterator[Any]:
        """The messages of a watch over as many connections as it takes, each event once, until a terminal snapshot. Raises
        DexError DEADLINE when `timeout` seconds are over first."""
        follow = Follow(after)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(end - time.monotonic(), 1e-3)
            call = method(request_after(follow.after_sequence), timeout=left, metadata=self._metadata)
            failure: DexError | None = None
            try:
                for message in call:
                    if follow.takes(message):
                        yield message
            except grpc.RpcError as error:
                failure = self._explained(error)
            finally:
                call.cancel()
            if follow.finished and failure is None:
                return
            delay = follow.pause(failure)
            if end is not None and time.monotonic() + delay >= end:
                raise DexError(f"not ended within {timeout:g} s; it goes on, only the waiting is over", reason="DEADLINE",
                               category="SYSTEM", code="DEADLINE_EXCEEDED", retryable=True)
            time.sleep(delay)

    def _patience(self, seconds: float | None) -> Patience:
        return Patience(self.timeout if seconds is None else seconds, self.timeout)

    def _explained(self, error: Any) -> DexError:
        return from_rpc(error, self.address.target, self.address.origin)

    @staticmethod
    def _wait_or_raise(patience: Patience, failure: DexError, cause: BaseException) -> None:
        delay = patience.delay_after(failure)
        if delay is None:
            raise failure from cause
        time.sleep(delay)
