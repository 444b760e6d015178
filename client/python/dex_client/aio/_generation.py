"""A generation that arrives piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from .._generation import Collected


class Stream(Collected):
    """Iterates over pieces of text as they come. close(), or the end of an `async with`, stops the generation and frees its
    place on the worker."""

    def __init__(self, messages: AsyncIterator[Any]) -> None:
        super().__init__()
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[str]:
        async for message in self._messages:
            piece = self.took(message)
            if piece is not None:
                yield piece

    async def close(self) -> None:
        close = getattr(self._messages, "aclose", None)
        if close is not None:
            await close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
