"""dex_client for asyncio: every method that asks the platform is awaited, every iterator is an asynchronous one."""

from ._client import Client
from ._evaluations import Evaluation
from ._generation import Stream
from ._job import Job

__all__ = ["Client", "Evaluation", "Job", "Stream"]
