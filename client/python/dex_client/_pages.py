"""Pages of lists, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._link import Link
from .v1 import finetuning_pb2


def pages(link: Link, method: Any, request: Any, field: str) -> Iterator[Any]:
    """Every item of a list that has page tokens; the next page is asked for when it is needed."""
    while True:
        page = link.call(method, request)
        yield from getattr(page, field)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def checkpoint_pages(link: Link, job: str) -> Iterator[finetuning_pb2.Checkpoint]:
    """Every checkpoint of a job; this list goes on after an id."""
    request = finetuning_pb2.ListFineTuningCheckpointsRequest(job=job, page_size=100)
    while True:
        page = link.call(link.stubs.jobs.ListFineTuningCheckpoints, request)
        yield from page.checkpoints
        if not page.has_more or not page.checkpoints:
            return
        request.after = page.checkpoints[-1].id
