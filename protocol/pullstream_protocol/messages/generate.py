"""Generator of the ``*_pb2.py`` and ``*_pb2.pyi`` files, in the folder of the .proto files.

``make protos`` runs it in a separate environment that has only the pinned compiler. The compiler is
pinned to an old version on purpose: its output works with every protobuf from 5.29 on, without a
warning. The output of a newer compiler refuses every older protobuf.
"""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

COMPILER = "grpcio-tools"
COMPILER_VERSION = "1.71.2"
# The protobuf version that this compiler generates for. Each generated module names it at the top.
PROTOBUF_VERSION = "5.29.0"

FOLDER = Path(__file__).resolve().parent
# File names ("pullstream_protocol/messages/pubsub.proto") and the imports between the generated
# modules are relative to this folder.
ROOT = FOLDER.parent.parent


def complaint_about_compiler() -> str | None:
    """Return why the installed compiler cannot be used, in one line; None if it can."""
    wish = f"install {COMPILER}=={COMPILER_VERSION}, or run make protos"
    try:
        installed = metadata.version(COMPILER)
    except metadata.PackageNotFoundError:
        return f"{COMPILER} is not installed: {wish}"
    if installed != COMPILER_VERSION:
        return f"{COMPILER} {installed} is installed, but it must be {COMPILER_VERSION}: {wish}"
    return None


def proto_files() -> list[str]:
    """Return all .proto files of the folder, relative to the root."""
    return sorted(path.relative_to(ROOT).as_posix() for path in FOLDER.glob("*.proto"))


def compile_all() -> int:
    """Run the compiler on all .proto files and return its exit status."""
    # Run as a module: only then does grpc_tools add the well-known .proto files.
    compiler = [sys.executable, "-m", "grpc_tools.protoc"]
    options = [f"--proto_path={ROOT}", f"--python_out={ROOT}", f"--pyi_out={ROOT}"]
    return subprocess.run([*compiler, *options, *proto_files()], check=False).returncode


def complete_stubs() -> None:
    """Add the type arguments of ``Mapping``, which the compiler omits and strict mypy requires."""
    for stub in FOLDER.glob("*_pb2.pyi"):
        text = stub.read_text(encoding="utf-8")
        stub.write_text(text.replace("_Mapping]", "_Mapping[str, object]]"), encoding="utf-8")


def main() -> int:
    """Generate the modules and return the exit status."""
    complaint = complaint_about_compiler()
    if complaint is not None:
        print(complaint, file=sys.stderr)
        return 1
    status = compile_all()
    if status == 0:
        complete_stubs()
    return status


if __name__ == "__main__":
    sys.exit(main())
