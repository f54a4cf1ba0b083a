"""Compilation of Protocol Buffers definitions with the protoc of grpcio-tools.

protoc runs in a separate process, because it writes errors to the process's standard error, and
because any client that can reach the broker can send a definition.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pullstream_protocol.errors import FailedPrecondition, Unavailable

from .definition import BadDefinition

# Longest time of a compilation, in seconds. It usually takes a tenth of a second.
MAX_SECONDS = 10.0


def compile_source(definition: str) -> FileDescriptorProto:
    """Return the descriptor of one .proto file. May be called on any thread.

    Raises:
        BadDefinition: The file does not compile. The error has the compiler's text.
        FailedPrecondition: The compiler is not installed.
        Unavailable: The compiler has not finished within `MAX_SECONDS` seconds.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise FailedPrecondition(
            "Schemas of type PROTOCOL_BUFFER need the Protocol Buffers compiler: "
            "pip install 'pullstream[schemas]'."
        )
    (file,) = FileDescriptorSet.FromString(_compiled(definition)).file
    return file


# A definition is compiled on a thread before its call begins, so that other calls do not wait. Then
# the call gets the result from this cache.
@lru_cache(maxsize=8)
def _compiled(definition: str) -> bytes:
    """Return the compiler's output, a FileDescriptorSet."""
    with tempfile.TemporaryDirectory(prefix="pullstream-") as folder:
        source, compiled = Path(folder, "schema.proto"), Path(folder, "schema.pb")
        source.write_text(definition, encoding="utf-8")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}"]
        command += [f"--descriptor_set_out={compiled}", str(source)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            # The machine may be busy, so this says nothing about the definition. Clients repeat
            # calls that end with UNAVAILABLE.
            raise Unavailable(
                f"The Protocol Buffers compiler needed more than {MAX_SECONDS:.0f} s for this "
                "definition. Try again when the machine is less busy."
            ) from None
        if done.returncode != 0 or not compiled.exists():
            raise BadDefinition(_first_complaint(done.stderr, str(source)))
        return compiled.read_bytes()


def _first_complaint(output: str, source: str) -> str:
    """Return the first error, without the name of the temporary file."""
    for line in output.splitlines():
        if line.startswith(f"{source}:") and "warning:" not in line:
            return line.removeprefix(f"{source}:").strip()
    return "the compiler rejects it without a reason"
