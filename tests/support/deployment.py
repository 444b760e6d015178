"""What tests of deploy/docker and deploy/k8s share: what our programs understand, and what a folder of a container is here.

The programs are asked (`--help`), so that a manifest can't name a flag which nobody takes any more.
"""

import re
import subprocess
from functools import lru_cache
from pathlib import Path

PROGRAMS = ("dex-scheduler", "dex-gateway", "dex-worker")
_OPTION = re.compile(r"^  (?:-\w,)?(--[a-z-]+)(.*)$", re.MULTILINE)


@lru_cache
def options_of(program):
    """The long options of a program: name → whether it takes a value; and the set of those that it can't do without."""
    text = subprocess.run([program, "--help"], check=True, capture_output=True, text=True, timeout=30).stdout
    found, needed = {}, set()
    for name, rest in _OPTION.findall(text):
        found[name] = bool(re.match(r" (?:TEXT|INT|UINT|FLOAT|NUMBER)\b", rest))
        if "REQUIRED" in rest:
            needed.add(name)
    return found, needed


def command_faults(command, bin_dir):
    """What is wrong with the command line of one of our programs: unknown options, missing ones, values too many or too few."""
    program = Path(command[0]).name
    known, needed = options_of(str(Path(bin_dir) / program))
    faults, given, rest = [], set(), list(command[1:])
    while rest:
        name, equals, _ = rest.pop(0).partition("=")
        if name not in known:
            faults.append(f"{program} has no option {name!r}")
            continue
        given.add(name)
        if known[name] and not equals:
            faults.append(f"{program} {name}: write the value behind '=', on the same line")
        if equals and not known[name]:
            faults.append(f"{program} {name} takes no value")
    return faults + [f"{program} needs {name}" for name in sorted(needed - given)]


def image_fault(image):
    """None, or why this name of an image is no fixed version."""
    if "@sha256:" in image:
        return None
    name, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        return f"{image!r} has no tag, which means latest"
    return None if re.search(r"\d+\.\d+", tag) and name else f"{image!r}: {tag!r} is no version"


def interpolated(text, environment):
    """A compose file with ${NAME:-default} replaced."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: environment.get(found[1]) or found[2], text)
