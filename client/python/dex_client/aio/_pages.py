"""Pages of lists, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ._link import Link


async def pages(link: Link, method: Any, request: Any, field: str) -> AsyncIterator[Any]:
    """Every item of a list that has page tokens; the next page is asked for when it is needed."""
    while True:
        page = await link.call(method, request)
        for item in getattr(page, field):
            yield item
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
