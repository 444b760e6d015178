"""Progress of a wait: a display that changes in place in a notebook, a line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from ._view import Work


class Progress:
    def __init__(self, wanted: bool, stream: Any = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._display: Any = None
        self._next = 0.0
        self._on_terminal = wanted and self._stream.isatty()
        if wanted and "ipykernel" in sys.modules:
            from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

            self._display = display("", display_id=True)

    def show(self, work: Work) -> None:
        if self._display is not None:
            # A picture is made of all events so far: twice a second, and at the end.
            if time.monotonic() < self._next and not work.done:
                return
            self._next = time.monotonic() + 0.5
            known = getattr(work, "known_html", None)
            self._display.update({"text/html": known() if known else "", "text/plain": repr(work)}, raw=True)
        elif self._on_terminal:
            self._stream.write(f"\r\x1b[K{work.line()}")
            self._stream.flush()

    def end(self) -> None:
        if self._on_terminal:
            self._stream.write("\n")
