"""client.operations: what operators see and say (api.md §2, AdminService)."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Iterable
from typing import Any

from .._fill import fill
from .._operations import key_request
from .._requests import new_request_id
from ..v1 import admin_pb2 as pb
from ._link import Link
from ._pages import pages


class Operations:
    """Needs a key with the scope `admin`; what is somebody else's, and every change, is the operator's alone (an admin of the
    platform's own tenant, `default`)."""

    def __init__(self, link: Link) -> None:
        self._link, self._stub = link, link.stubs.admin

    async def queue(self, *, pool: str | None = None, count: int | None = None) -> pb.Queue:
        """What waits and for what, by pool: the first `count` jobs of each (20, at most 100)."""
        return await self._link.call(self._stub.GetQueue, fill(pb.GetQueueRequest(), {"pool": pool, "count": count}))

    def workers(self) -> AsyncIterator[pb.Worker]:
        """Those that are there, in the order of their ids, page by page."""
        return pages(self._link, self._stub.ListWorkers, pb.ListWorkersRequest(page_size=100), "workers")

    async def update_worker(self, id: str, *, draining: bool, request_id: str | None = None) -> pb.Worker:
        """draining=True: it gets no new jobs and ends those that it runs, also over its own restart; False: back to work."""
        return await self._link.call(self._stub.UpdateWorker, pb.UpdateWorkerRequest(
            id=id, draining=draining, request_id=request_id or new_request_id()))

    async def quota(self, tenant: str = "") -> pb.Quota:
        """What a tenant (empty: the caller's) may have, and what it has."""
        return await self._link.call(self._stub.GetQuota, pb.GetQuotaRequest(tenant=tenant))

    async def set_quota(self, tenant: str = "", *, request_id: str | None = None, **limits: Any) -> pb.Quota:
        """weight, max_queued, max_running, device_seconds_per_day; what is left out stays. Holds at once and stops nothing
        that runs. etag: of quota(), so that nobody else's change is lost (ETAG_MISMATCH)."""
        return await self._link.call(self._stub.SetQuota, fill(
            pb.SetQuotaRequest(tenant=tenant, request_id=request_id or new_request_id()), limits))

    async def who_am_i(self) -> pb.Caller:
        """Whose the key is that this client sends, and what it opens. Any key may ask."""
        return await self._link.call(self._stub.WhoAmI, pb.WhoAmIRequest())

    async def create_key(self, name: str, scopes: Iterable[str], *, tenant: str = "", expire_time: datetime.datetime | None = None,
                   request_id: str | None = None) -> pb.ApiKey:
        """Makes an API key. Its `secret` is in this answer alone: keep it, nobody can show it again. expire_time: with its time
        zone; without one it never ends."""
        return await self._link.call(self._stub.CreateApiKey, key_request(name, scopes, tenant, expire_time, request_id))

    def keys(self, tenant: str = "") -> AsyncIterator[pb.ApiKey]:
        """A tenant's keys (empty: the caller's), newest first, also revoked and expired ones, page by page."""
        return pages(self._link, self._stub.ListApiKeys, pb.ListApiKeysRequest(tenant=tenant, page_size=100), "keys")

    async def revoke_key(self, id: str, *, request_id: str | None = None) -> pb.ApiKey:
        """Refused from now on, at every gateway within seconds."""
        return await self._link.call(self._stub.RevokeApiKey, pb.RevokeApiKeyRequest(
            id=id, request_id=request_id or new_request_id()))

    async def usage(self, tenant: str = "", *, days: int | None = None) -> pb.GetUsageResponse:
        """What a tenant has used, by UTC day, newest first: the last `days` (30, at most 400), those with any use."""
        return await self._link.call(self._stub.GetUsage, fill(pb.GetUsageRequest(tenant=tenant), {"days": days}))
