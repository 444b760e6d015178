"""Pages of lists, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ..v1 import finetuning_pb2
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


async def checkpoint_pages(link: Link, job: str) -> AsyncIterator[finetuning_pb2.Checkpoint]:
    """Every checkpoint of a job; this list goes on after an id."""
    request = finetuning_pb2.ListFineTuningCheckpointsRequest(job=job, page_size=100)
    while True:
        page = await link.call(link.stubs.jobs.ListFineTuningCheckpoints, request)
        for checkpoint in page.checkpoints:
            yield checkpoint
        if not page.has_more or not page.checkpoints:
            return
        request.after = page.checkpoints[-1].id
