"""A generation that arrives piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .v1 import inference_pb2 as pb


class Collected:
    """What has come of a stream; `reply` is as complete as a whole answer once the stream is through."""

    def __init__(self) -> None:
        self.reply = pb.GenerateResponse()

    @property
    def text(self) -> str:
        return self.reply.text

    def took(self, message: pb.GenerateStreamResponse) -> str | None:
        """Notes a message; its new text, None where it has none."""
        if message.HasField("start"):
            start = message.start
            self.reply.MergeFrom(pb.GenerateResponse(id=start.id, model=start.model, seed=start.seed,
                                                     create_time=start.create_time, system_fingerprint=start.system_fingerprint))
            if start.HasField("adapter"):
                self.reply.adapter.CopyFrom(start.adapter)
        elif message.HasField("delta"):
            self.reply.text += message.delta.text
            self.reply.token_ids.extend(message.delta.token_ids)
            self.reply.logprobs.extend(message.delta.logprobs)
            return message.delta.text or None
        elif message.HasField("finish"):
            end = message.finish
            self.reply.finish_reason, self.reply.stop_reason = end.finish_reason, end.stop_reason
            self.reply.usage.CopyFrom(end.usage)
            self.reply.timing.CopyFrom(end.timing)
        return None


class Stream(Collected):
    """Iterates over pieces of text as they come. close(), the end of a `with`, or of the last reference, stops the
    generation and frees its place on the worker."""

    def __init__(self, messages: Iterator[Any]) -> None:
        super().__init__()
        self._messages = messages

    def __iter__(self) -> Iterator[str]:
        for message in self._messages:
            piece = self.took(message)
            if piece is not None:
                yield piece

    def close(self) -> None:
        close = getattr(self._messages, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
