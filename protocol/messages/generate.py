"""Writes the ``*_pb2.py`` and ``*_pb2.pyi`` files beside the .proto files, in their folder.

``make protos`` runs it, in an environment of its own that holds nothing but the pinned compiler.
The compiler is pinned to an old one on purpose: what it writes runs on every protobuf from 5.29
on, without a warning, while what a newer compiler writes refuses every older protobuf.
"""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

COMPILER = "grpcio-tools"
COMPILER_VERSION = "1.71.2"
# The protobuf that this compiler writes for; it stands in the head of every generated module.
PROTOBUF_VERSION = "5.29.0"

FOLDER = Path(__file__).resolve().parent
# Files are named from here ("protocol/messages/pubsub.proto"), and so are the imports between the
# generated modules.
ROOT = FOLDER.parent.parent


def complaint_about_compiler() -> str | None:
    """Say in one line why the installed compiler will not do, or None if it will."""
    wish = f"install {COMPILER}=={COMPILER_VERSION}, or run make protos"
    try:
        installed = metadata.version(COMPILER)
    except metadata.PackageNotFoundError:
        return f"{COMPILER} is not installed: {wish}"
    if installed != COMPILER_VERSION:
        return f"{COMPILER} {installed} is installed, but it must be {COMPILER_VERSION}: {wish}"
    return None


def proto_files() -> list[str]:
    """Return every .proto file of the folder, named from the root."""
    return sorted(path.relative_to(ROOT).as_posix() for path in FOLDER.glob("*.proto"))


def compile_all() -> int:
    """Run the compiler over every .proto file and return its exit status."""
    # By module and not by import: only so does grpc_tools add the well-known .proto files.
    compiler = [sys.executable, "-m", "grpc_tools.protoc"]
    options = [f"--proto_path={ROOT}", f"--python_out={ROOT}", f"--pyi_out={ROOT}"]
    return subprocess.run([*compiler, *options, *proto_files()], check=False).returncode


def complete_stubs() -> None:
    """Give each bare ``Mapping`` its arguments: the compiler omits them, strict mypy wants them."""
    for stub in FOLDER.glob("*_pb2.pyi"):
        text = stub.read_text(encoding="utf-8")
        stub.write_text(text.replace("_Mapping]", "_Mapping[str, object]]"), encoding="utf-8")


def main() -> int:
    """Generate the modules; the answer is the exit status."""
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
