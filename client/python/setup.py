"""Makes the stubs of proto/dex/v1 while the package is built: dex_lm_eval/v1, which is in no checkout."""

import importlib.resources
import pathlib
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
CONTRACT = HERE.parent.parent / "proto"


def make_stubs(folder):
    from grpc_tools import protoc

    sources = sorted(file.relative_to(CONTRACT).as_posix() for file in CONTRACT.glob("dex/v1/*.proto"))
    if not sources:
        sys.exit(f"{CONTRACT}/dex/v1 has no .proto files; install from a checkout of the whole repository: "
                 "pip install client/python")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text('"""Made from proto/dex/v1 by setup.py."""\n')
    with tempfile.TemporaryDirectory() as made:
        well_known = importlib.resources.files("grpc_tools") / "_proto"
        if protoc.main(["protoc", f"-I{CONTRACT}", f"-I{well_known}", f"--python_out={made}", f"--grpc_python_out={made}",
                        *sources]):
            sys.exit(f"protoc could not read {CONTRACT}/dex/v1; its message is above")
        for stub in pathlib.Path(made).glob("dex/v1/*.py"):
            # protoc takes the proto's path for a Python package; ours lies inside dex_lm_eval.
            (folder / stub.name).write_text(stub.read_text().replace("from dex.v1 import ", "from . import "))


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        make_stubs((HERE if self.editable_mode else pathlib.Path(self.build_lib)) / "dex_lm_eval" / "v1")


setup(cmdclass={"build_py": BuildWithStubs})
