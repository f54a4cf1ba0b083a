"""A gRPC call that ended with a status, made by hand, for example as `next(call)` raises it."""

from __future__ import annotations

import grpc

from pullstream_protocol.errors import RpcError, status_of

Metadata = tuple[tuple[str, str | bytes], ...]


class FailedCall(grpc.RpcError, grpc.Call):
    """An error that is a call as well, as grpc's own are."""

    def __init__(
        self, code: grpc.StatusCode, details: str | None = "no reason", trailers: Metadata = ()
    ) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details
        self._trailers = trailers

    @classmethod
    def of(cls, error: RpcError) -> FailedCall:
        """Return the call that one of our servers fails with `error`."""
        return cls(*status_of(error))

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str | None:  # type: ignore[override]
        return self._details

    def trailing_metadata(self) -> Metadata:  # type: ignore[override]
        return self._trailers

    def initial_metadata(self) -> Metadata:
        return ()

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> float:
        return 0.0

    def cancel(self) -> bool:
        return False

    def add_callback(self, callback: object) -> bool:
        return False
