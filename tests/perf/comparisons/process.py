"""Runs one program of a comparison, and says on what machine."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from comparisons.common import ROOT, Refused

RUN_LIMIT_S = 1800  # a run that takes longer hangs


def busy_seconds():
    """Processor seconds of the whole machine so far; idle and waiting left out, what the host took counted."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def kill_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def parse(text):
    """The output's JSON object: all of it, or its last line."""
    lines = text.strip().splitlines() or [""]
    for part in (text, lines[-1]):
        try:
            found = json.loads(part)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


def run(command, what, limit_s=RUN_LIMIT_S):
    """The object that `command` prints, with wall_s (from exec to exit), other_s (processor seconds of other work meanwhile) and,
    where it does not say so itself, peak_rss_mib. Whatever ends this function ends the program and all that it started."""
    words = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        busy, own, began = busy_seconds(), time.process_time(), time.monotonic()
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        except OSError as error:
            raise Refused(f"{what} can't be started: {error}") from None
        watch = threading.Timer(limit_s, kill_group, [process.pid])
        watch.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            kill_group(process.pid)
            raise
        finally:
            watch.cancel()
        wall = time.monotonic() - began
        other = busy_seconds() - busy - usage.ru_utime - usage.ru_stime - (time.process_time() - own)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            late = f" (it was ended after {limit_s:g} s)" if wall >= limit_s else ""
            raise Refused(f"{what} ended with {process.returncode}{late}: {err.read().strip()[-2000:]}")
        found = parse(out.read())
    if found is None:
        raise Refused(f"{what} printed no JSON object: {' '.join(words)}")
    return {"peak_rss_mib": usage.ru_maxrss // 1024} | found | {"wall_s": wall, "other_s": max(0.0, other)}


def cpu_name():
    info = Path("/proc/cpuinfo").read_text()
    name = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), "unknown")
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16") if f" {flag} " in info.replace("\n", " ")]
    return f"{name} ({', '.join(flags)})"


def commit():
    """Of this checkout; a + behind it: with changes."""
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def machine(threads):
    """What every line of results says of where it comes from. Taken before the first run: later the load is our own."""
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": threads, "load": round(os.getloadavg()[0], 2), "commit": commit()}
