"""Makes the stubs of proto/dex/v1 while the package is built: dex_client/v1 and dex_client/rpc, which are in no checkout."""

import importlib.resources
import pathlib
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
CONTRACT = HERE.parent.parent / "proto"


def protoc(includes, out, sources, grpc_too):
    from grpc_tools import protoc as compiler

    well_known = importlib.resources.files("grpc_tools") / "_proto"
    flags = [f"--python_out={out}", f"--pyi_out={out}"] + ([f"--grpc_python_out={out}"] if grpc_too else [])
    if compiler.main(["protoc", *(f"-I{folder}" for folder in (*includes, well_known)), *flags, *sources]):
        sys.exit(f"protoc could not read {', '.join(map(str, includes))}; its message is above")


def keep(made, folder, package):
    """protoc takes a proto's path for a Python package; ours lies inside dex_client."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text('"""Made from proto/ by setup.py."""\n')
    for stub in [*made.glob("*.py"), *made.glob("*.pyi")]:
        (folder / stub.name).write_text(stub.read_text().replace(f"from {package} import ", "from . import "))


def make_stubs(folder):
    """`folder`/v1 of the public contract, and `folder`/rpc of the messages that errors travel in."""
    sources = sorted(file.relative_to(CONTRACT).as_posix() for file in CONTRACT.glob("dex/v1/*.proto"))
    if not sources:
        sys.exit(f"{CONTRACT}/dex/v1 has no .proto files; install from a checkout of the whole repository: "
                 "pip install client/python")
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch)
        protoc([CONTRACT], made, sources, grpc_too=True)
        keep(made / "dex/v1", folder / "v1", "dex.v1")
        # Under a name of our own: a program may hold googleapis-common-protos too, and protobuf knows each name once.
        own = made / "dex_client_rpc"
        own.mkdir()
        for proto in (CONTRACT / "third_party/google/rpc").glob("*.proto"):
            (own / proto.name).write_text(proto.read_text().replace("package google.rpc;", "package dex.client.rpc;"))
        protoc([made], made, sorted(f"dex_client_rpc/{file.name}" for file in own.glob("*.proto")), grpc_too=False)
        keep(own, folder / "rpc", "dex_client_rpc")


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        make_stubs((HERE if self.editable_mode else pathlib.Path(self.build_lib)) / "dex_client")


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithStubs})
