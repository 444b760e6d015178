"""The platform of this checkout, for programs of tests/perf that measure all of it together."""

import json
import signal
import subprocess
import sys
import time

SECONDS_TO_START = 120


class Platform:
    """dexd with the models of `deps` and data in `folder`, on free ports, in a session of its own; stopped in order however this ends."""

    def __init__(self, folder, programs, deps, said_by):
        self.endpoints = folder / "endpoints.json"
        self.said_by = said_by
        folder.mkdir(parents=True, exist_ok=True)
        self.endpoints.unlink(missing_ok=True)
        with open(folder / "dexd.log", "w") as log:
            command = [programs / "dexd", "--data-dir", folder, "--models", deps / "models/models.json", "--grpc-port", "0",
                       "--http-port", "0"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def __enter__(self):
        """The addresses of endpoints.json."""
        deadline = time.monotonic() + SECONDS_TO_START
        while not self.endpoints.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                sys.exit(f"{self.said_by}: dexd did not start; its output: {self.endpoints.parent / 'dexd.log'}")
            time.sleep(0.1)
        return json.loads(self.endpoints.read_text())

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
