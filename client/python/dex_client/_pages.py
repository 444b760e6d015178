"""Pages of lists, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._link import Link


def pages(link: Link, method: Any, request: Any, field: str) -> Iterator[Any]:
    """Every item of a list that has page tokens; the next page is asked for when it is needed."""
    while True:
        page = link.call(method, request)
        yield from getattr(page, field)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
