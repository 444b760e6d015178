"""Where things are, and the package as people install it. The tests run under `run_pytest`, which sets DEX_BIN (build/bin)
and DEX_DEPS (.deps)."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BIN, DEPS = (pathlib.Path(os.environ[name]) for name in ("DEX_BIN", "DEX_DEPS"))


def install_client(folder):
    """client/python by pip, from a copy: a build leaves files beside its sources."""
    copy, site = folder / "checkout", folder / "site"
    shutil.copytree(ROOT / "proto", copy / "proto")
    shutil.copytree(ROOT / "client/python", copy / "client/python",
                    ignore=shutil.ignore_patterns("__pycache__", "v1", "rpc", "build", "*.egg-info"))
    subprocess.run([DEPS / "setup-venv/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--quiet",
                    "--no-index", "--no-deps", "--no-build-isolation", "--target", site, copy / "client/python"], check=True)
    return site


def pytest_configure(config):
    config._dex_folder = tempfile.mkdtemp(prefix="dex-client-")
    sys.path.insert(0, str(install_client(pathlib.Path(config._dex_folder))))
    # What a developer has set must not lead a test to a platform of theirs.
    for name in ("DEX_SERVER", "DEX_DATA_DIR", "DEX_API_KEY"):
        os.environ.pop(name, None)
    os.environ["HOME"] = config._dex_folder


def pytest_unconfigure(config):
    shutil.rmtree(config._dex_folder, ignore_errors=True)
