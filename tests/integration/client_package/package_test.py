"""The C++ client as other projects get it: installed into a folder of its own, found there by a project that has nothing of
this repository, whose example then adapts a model on the real platform:

    DEX_BUILD=build CXX=… run_pytest BIN DEPS package_test.py
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from dex_fixtures import ROOT
from tiny_platform import NAME, write_rows

BUILD = pathlib.Path(os.environ["DEX_BUILD"])
EXAMPLE = ROOT / "client/cpp/examples"
# What a user may have to have: gRPC and protobuf.
FOREIGN = re.compile(r'#\s*include\s*[<"](spdlog|nlohmann|boost|prometheus|openssl|archive|services/rpc|services/auth|worker|scheduler)')


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(prefix, the example's program), from a copy of the example alone."""
    folder = tmp_path_factory.mktemp("package")
    prefix, source = folder / "prefix", folder / "example"
    run("cmake", "--install", BUILD, "--component", "dex_client", "--prefix", prefix)
    shutil.copytree(EXAMPLE, source)
    run("cmake", "-S", source, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
        *([f"-DCMAKE_CXX_FLAGS=-fsanitize={os.environ['DEX_SANITIZE']}"] if os.environ.get("DEX_SANITIZE") else []))
    run("cmake", "--build", folder / "build")
    return prefix, folder / "build/first_adapter"


def test_nothing_of_this_repository_is_needed(built):
    prefix, program = built
    headers = [file for file in prefix.rglob("*.h")]
    assert {"client.h", "status.h", "finetuning.grpc.pb.h"} <= {file.name for file in headers}
    assert not [file for file in headers if "internal" in file.parts]
    assert {str(file): found.group(0) for file in headers if (found := FOREIGN.search(file.read_text()))} == {}
    for file in prefix.rglob("*.cmake"):
        assert str(ROOT) not in file.read_text() and str(BUILD) not in file.read_text(), f"{file} points into the checkout"
    library = next(prefix.rglob("libdex_client.so"))
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert not [name for name in ("prometheus", "hiredis", "torch", "boost") if name in needed], needed
    assert str(library.parent) in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout


def test_the_example_is_as_short_as_it_says():
    assert len((EXAMPLE / "first_adapter.cc").read_text().splitlines()) <= 40


def test_the_example_uploads_creates_follows_and_generates(built, platform, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", count=12)
    done = run(built[1], platform.server, NAME, rows, "Row 3:", timeout=300)
    assert re.match(rf"ft:{NAME}:default:", done.stdout), done.stdout
    assert "saved" in done.stderr or "step" in done.stderr, done.stderr


def test_what_is_wrong_is_said_in_words(built, tmp_path):
    nobody = subprocess.run([built[1], "127.0.0.1:1", NAME, tmp_path / "missing.jsonl", "x"], capture_output=True, text=True)
    assert nobody.returncode == 1 and "there is no regular file" in nobody.stderr
    usage = subprocess.run([built[1]], capture_output=True, text=True)
    assert usage.returncode == 1 and "SERVER MODEL ROWS.jsonl PROMPT" in usage.stderr
