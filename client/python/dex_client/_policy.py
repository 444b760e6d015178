"""When a call is made again, and where a watch goes on. Pure: no I/O, clock and chance are passed in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from ._errors import DexError
from .v1 import finetuning_pb2 as jobs_pb

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.2, 2.0
TERMINAL = frozenset({jobs_pb.JOB_STATE_SUCCEEDED, jobs_pb.JOB_STATE_FAILED, jobs_pb.JOB_STATE_CANCELLED,
                      jobs_pb.JOB_STATE_EXPIRED})


def worth_repeating(error: DexError) -> bool:
    """Nobody was there, or too many asked at once. Safe, since every call that changes something carries a request_id."""
    return error.code == "UNAVAILABLE" or error.reason == "RATE_LIMITED"


class Patience:
    """How long one call may take, and how it is repeated: `seconds` in all, `search_seconds` of them for finding anybody."""

    def __init__(self, seconds: float, search_seconds: float, clock: Callable[[], float] = time.monotonic,
                 chance: Callable[[], float] = random.random) -> None:
        self._clock, self._chance = clock, chance
        start = clock()
        self._end, self._search_end = start + seconds, start + min(seconds, search_seconds)
        self._delay = FIRST_DELAY_SECONDS

    def left(self) -> float:
        """Seconds until the deadline; never 0, which gRPC takes for none at all."""
        return max(self._end - self._clock(), 1e-3)

    def delay_after(self, error: DexError) -> float | None:
        """Seconds to wait before the next try, the platform's own RetryInfo first; None: the error is final."""
        if not worth_repeating(error):
            return None
        # Half of the delay to the whole: those who lost their server together come back apart.
        delay = self._delay * (1 - self._chance() / 2)
        if error.retry_after_seconds is not None:
            delay = max(error.retry_after_seconds, 0.0)
        self._delay = min(self._delay * 2, LONGEST_DELAY_SECONDS)
        return delay if self._clock() + delay < self._search_end else None


class Follow:
    """Where a watch stands over as many connections as it takes."""

    def __init__(self, after_sequence: int, chance: Callable[[], float] = random.random) -> None:
        self.after_sequence, self.finished = after_sequence, False
        self._chance, self._delay = chance, FIRST_DELAY_SECONDS

    def takes(self, message: Any) -> bool:
        """Whether a message is new; it counts as delivered then."""
        self._delay = FIRST_DELAY_SECONDS
        if message.HasField("snapshot"):
            self.finished = message.snapshot.state in TERMINAL
        if message.HasField("event"):
            if message.event.sequence <= self.after_sequence:
                return False
            self.after_sequence = message.event.sequence
        return True

    def pause(self, error: DexError | None) -> float:
        """Seconds until the next connection after one that ended early; raises what is final, like NOT_FOUND."""
        if error is not None and not worth_repeating(error) and error.code != "DEADLINE_EXCEEDED":
            raise error
        delay = self._delay * (1 - self._chance() / 2)
        self._delay = min(self._delay * 2, LONGEST_DELAY_SECONDS)
        return delay
