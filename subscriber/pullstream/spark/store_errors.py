"""The causes of errors of object stores, whose texts are trees, XML and Rust's objects."""

from __future__ import annotations

import re

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_DEBUG = re.compile(r"\s*Debug source:.*", re.DOTALL)
# The lines of a tree of errors, as deltalake prints it.
_BRANCH = re.compile(r"\s*\n\s*(?:↳\s*)?")

# Each error of a request has it.
_REQUEST = "Error performing "
_CODE = re.compile(r"<Code>(\w+)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_STATUS = re.compile(r"status code\W+(\d{3} [A-Z][A-Za-z ]*[a-z])")

_NO_BUCKET = re.compile(
    r"NoSuchBucket|ContainerNotFound|The specified (?:bucket|container) does not exist"
)
_DENIED = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
    r"|Authentication\w*|Authorization\w+|40[13] (?:Forbidden|Unauthorized)"
)
# Where a machine of a cloud gets its credentials, if it has no others.
_CREDENTIALS = re.compile(r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal")
_UNREACHABLE = "error sending request"
_NETWORK = re.compile(r"Connection refused|dns error|timed out|certificate", re.IGNORECASE)


def is_of_store(error: BaseException) -> bool:
    """Return whether a request to an object store has raised this error."""
    return _REQUEST in str(error)


def is_of_storage(error: BaseException) -> bool:
    """Return whether an error is of a disk or an object store, so that it may pass."""
    return isinstance(error, OSError) or is_of_store(error)


def is_denied(error: BaseException) -> bool:
    """Return whether an object store has refused the access."""
    return is_of_store(error) and bool(_DENIED.search(_text(error)))


def store_cause(error: BaseException) -> str:
    """Return the cause of an error and its remedy in one line.

    Args:
        error: An error of obstore, deltalake or pyiceberg. An error that is not of a request to an
            object store keeps its text, without colors and objects of Rust.
    """
    text = _text(error)
    if not is_of_store(error):
        return _BRANCH.sub(": ", text)
    if found := _NO_BUCKET.search(text):
        return f"the bucket does not exist ({found[0]}); create it, or correct the URL"
    code, status = _CODE.search(text), _STATUS.search(text)
    if found := _DENIED.search(text):
        reason = code[1] if code else found[0]
        return (
            f"the store refuses the access ({reason}); check the credentials, and their rights to "
            "list, read, create and delete files there"
        )
    if _UNREACHABLE in text:
        if _CREDENTIALS.search(text):
            return (
                "there are no credentials for the store; give them by storage settings, such as "
                "--storage aws_access_key_id=..., or in the environment"
            )
        network = _NETWORK.search(str(error))
        reason = network[0] if network else _UNREACHABLE
        return (
            f"the store cannot be reached ({reason}); check the network and the address, such as "
            "--storage aws_endpoint=..."
        )
    if code:
        return f"the store answers {code[1]}" + (f": {code[2]}" if code[2] else "")
    if status:
        return f"the store answers {status[1]}"
    return _BRANCH.sub(": ", text)


def _text(error: BaseException) -> str:
    """Return the text of an error without colors and objects of Rust."""
    return _DEBUG.sub("", _COLORS.sub("", str(error) or repr(error))).strip()
