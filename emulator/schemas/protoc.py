"""Definitions in the language of Protocol Buffers, compiled by the protoc of grpcio-tools.

It runs in a process of its own: it writes its complaints to the process's standard error, and a
definition comes from whoever can reach the broker.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from protocol.errors import FailedPrecondition

from .definition import BadDefinition

# It takes a tenth of a second. In seconds.
PATIENCE = 10.0


def compile_source(definition: str) -> FileDescriptorProto:
    """The descriptor of one .proto file. May be called on any thread.

    Raises:
        BadDefinition: with the compiler's words.
        FailedPrecondition: the compiler is not installed.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise FailedPrecondition(
            "Schemas of type PROTOCOL_BUFFER need the Protocol Buffers compiler: "
            "pip install 'pullstream[schemas]'."
        )
    (file,) = FileDescriptorSet.FromString(_compiled(definition)).file
    return file


# What was compiled aside, so that nobody waits, is wanted again by the call that it was for.
@lru_cache(maxsize=8)
def _compiled(definition: str) -> bytes:
    """The compiler's output, a FileDescriptorSet."""
    with tempfile.TemporaryDirectory(prefix="pullstream-") as folder:
        source, compiled = Path(folder, "schema.proto"), Path(folder, "schema.pb")
        source.write_text(definition, encoding="utf-8")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}"]
        command += [f"--descriptor_set_out={compiled}", str(source)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            raise BadDefinition(f"compiling it takes more than {PATIENCE:.0f} s") from None
        if done.returncode != 0 or not compiled.exists():
            raise BadDefinition(_first_complaint(done.stderr, str(source)))
        return compiled.read_bytes()


def _first_complaint(output: str, source: str) -> str:
    """The first error, without the name of a file that the caller never saw."""
    for line in output.splitlines():
        if line.startswith(f"{source}:") and "warning:" not in line:
            return line.removeprefix(f"{source}:").strip()
    return "the compiler does not take it"
