"""Where the platform is and by which key it is asked: the same sources as dexctl's, so that both talk to the same one."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping

from ._errors import DexError

_WAY_OUT = "; start dexd, or name the platform with server=\"host:port\" or DEX_SERVER"


@dataclasses.dataclass(frozen=True)
class Address:
    """target: host:port or unix:/path. origin: who named it, for errors. api_key: None where there is none."""

    target: str
    origin: str
    api_key: str | None = dataclasses.field(default=None, repr=False)


def process_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def find_server(server: str | None = None, api_key: str | None = None, environment: Mapping[str, str] = os.environ,
                alive: Callable[[int], bool] = process_lives) -> Address:
    """server, else DEX_SERVER, else the endpoints.json of a dexd on this machine (DEX_DATA_DIR or ~/.local/share/dex), else
    localhost:50051. The key: api_key, else DEX_API_KEY, else the admin.key beside that endpoints.json. Raises DexError for
    an endpoints.json that names no address, or whose dexd is gone: it is never passed over."""
    key = api_key or environment.get("DEX_API_KEY") or None
    if server:
        return Address(str(server), "server=", key)
    if environment.get("DEX_SERVER"):
        return Address(environment["DEX_SERVER"], "DEX_SERVER", key)
    home = environment.get("HOME")
    data_dir = environment.get("DEX_DATA_DIR") or (os.path.join(home, ".local/share/dex") if home else "")
    file = pathlib.Path(data_dir, "endpoints.json")
    if data_dir and file.is_file():
        return Address(_named_by(file, alive), str(file), key or _key_beside(file))
    return Address("localhost:50051", "the default", key)


def _named_by(file: pathlib.Path, alive: Callable[[int], bool]) -> str:
    try:
        said = json.loads(file.read_text())
        target = said["grpc"]
        if not isinstance(target, str):
            raise TypeError("not a text")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DexError(f"{file} names no \"grpc\" address{_WAY_OUT}", reason="INVALID_FIELD", category="USER") from error
    pid = said.get("pid")
    if isinstance(pid, int) and (pid <= 0 or not alive(pid)):
        raise DexError(f"{file} is left over from a dexd (process {pid}) that is gone{_WAY_OUT}", code="UNAVAILABLE",
                       category="USER")
    return target


def _key_beside(file: pathlib.Path) -> str | None:
    try:
        return file.with_name("admin.key").read_text().strip() or None
    except OSError:  # authentication is off, or the key is another user's
        return None
