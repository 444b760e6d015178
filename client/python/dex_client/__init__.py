"""Client of the DEX fine-tuning platform: upload rows, adapt a model, use the adapter (README.md).

Client blocks; aio.Client is the same for asyncio. Messages are those of dex.v1 (dex_client.v1). dex_client.hf loads adapters
into transformers and needs torch.
"""

from . import aio
from ._address import find_server
from ._client import Client
from ._curves import Curves
from ._errors import DexError, InvalidFile, JobFailed
from ._evaluations import Evaluation
from ._file_checks import FileCheck
from ._generation import Stream
from ._job import Job
from ._view import Plot

__all__ = ["Client", "Curves", "DexError", "Evaluation", "FileCheck", "InvalidFile", "Job", "JobFailed", "Plot", "Stream", "aio",
           "find_server"]
