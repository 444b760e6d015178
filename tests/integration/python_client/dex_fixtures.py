"""Where things are, the package as people install it, and a real platform: a pytest plugin that `run_pytest` loads, which
sets DEX_BIN (build/bin) and DEX_DEPS (.deps) too."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

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


@pytest.fixture(scope="session")
def platform(tmp_path_factory):
    """One dexd for all tests of a run."""
    from tiny_platform import Platform

    with Platform(BIN, DEPS, tmp_path_factory.mktemp("platform")) as running:
        yield running


@pytest.fixture
def client(platform):
    from dex_client import Client

    with Client(platform.server) as opened:
        yield opened


@pytest.fixture(scope="session")
def trained(platform, tmp_path_factory):
    """A job that has made an adapter: (job, its folder)."""
    from dex_client import Client
    from tiny_platform import short_job, write_rows

    folder = tmp_path_factory.mktemp("trained")
    with Client(platform.server) as opened:
        job = opened.jobs.create(training_file=write_rows(folder / "rows.jsonl"), suffix="fixture", **short_job()).wait()
        opened.adapters.download(job.fine_tuned_model, folder / "adapter")
        yield job, folder / "adapter"
