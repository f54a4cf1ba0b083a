"""HTTP client for the administration of a pullstream broker."""

from __future__ import annotations

import json
import os
import shutil
import ssl
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

import click

from pullstream.rpc.endpoint import EMULATOR_VARIABLE, access_of
from pullstream_protocol import names

from .context import CliContext

_PREFIX = "/v0/admin"
_TIMEOUT = 30.0
_DEFAULT_ENDPOINT = "localhost:8085"


class BrokerAdmin:
    """Calls the administration API of one broker.

    The connection options name the broker; the default is PUBSUB_EMULATOR_HOST, then
    localhost:8085.

    Args:
        session: The settings of the run.

    Raises:
        UsageError: The connection options are wrong.
    """

    def __init__(self, session: CliContext) -> None:
        connection = session.connection
        if connection["endpoint"] is None and not os.environ.get(EMULATOR_VARIABLE):
            connection["endpoint"] = _DEFAULT_ENDPOINT
        try:
            access = access_of(**connection)
            self._opener = _opener(access.ca, connection["cert"], connection["key"])
        except (ValueError, ssl.SSLError) as error:
            raise click.UsageError(str(error)) from error
        scheme = "http" if access.target.plaintext else "https"
        self._address = f"{scheme}://{access.target.address}"
        self._headers = {} if access.token is None else {"Authorization": f"Bearer {access.token}"}

    @classmethod
    def status_of(cls, session: CliContext, project: str) -> dict[str, Any] | None:
        """Return a project's status; None for a server that has none, such as Google Cloud."""
        if session.endpoint is None and not os.environ.get(EMULATOR_VARIABLE):
            return None
        try:
            return cls(session).status(project)
        except click.ClickException:
            # The broker serves no HTTP, or is one of another kind.
            return None

    def status(self, project: str | None) -> dict[str, Any]:
        """Return the status of a project; None: of all projects that the token may see.

        Raises:
            UsageError, ClickException: See `call`.
        """
        query = "" if project is None else f"?project={_quoted(project)}"
        status: dict[str, Any] = self._exchange("GET", f"/v0/status{query}", None, json.load)
        return status

    def messages(self, subscription: str, limit: int) -> dict[str, Any]:
        """Return the oldest unacknowledged messages of a subscription, without a lease.

        Args:
            subscription: Full name.
            limit: Maximum number of messages, up to 1,000.

        Raises:
            UsageError, ClickException: See `call`.
        """
        project = _quoted(names.project_of(subscription))
        short = _quoted(names.short_id(subscription))
        path = f"/v0/subscriptions/{short}/messages?project={project}&limit={limit}"
        found: dict[str, Any] = self._exchange("GET", path, None, json.load)
        return found

    def message(self, topic: str, message_id: str) -> dict[str, Any]:
        """Return one message of a topic with all its data.

        Raises:
            UsageError, ClickException: See `call`.
        """
        path = f"/v0/messages/{_quoted(message_id)}?topic={_quoted(topic)}"
        found: dict[str, Any] = self._exchange("GET", path, None, json.load)
        return found

    def download(self, path: str, file: Path) -> None:
        """Write the broker's answer to a GET request into a file.

        Args:
            path: The whole path of the request.
            file: The file, which is created or replaced.

        Raises:
            UsageError, ClickException: See `call`.
        """

        def save(response: HTTPResponse) -> None:
            with file.open("wb") as copy:
                shutil.copyfileobj(response, copy)
            if file.stat().st_size != int(response.headers.get("Content-Length", -1)):
                raise OSError("the connection was cut")

        self._exchange("GET", path, None, save)

    def call(self, method: str, path: str, fields: dict[str, Any] | None = None) -> Any:
        """Send a request and return the broker's JSON answer.

        Args:
            method: HTTP method.
            path: Path below the prefix of the administration API.
            fields: Body of the request. None: no body.

        Raises:
            UsageError: The broker rejects the request as malformed.
            ClickException: The broker rejects the request for another reason, or does not answer.
        """
        return self._exchange(method, _PREFIX + path, fields, json.load)

    def _exchange(
        self,
        method: str,
        path: str,
        fields: dict[str, Any] | None,
        read: Callable[[HTTPResponse], Any],
    ) -> Any:
        """Send a request, and return what `read` makes of the response."""
        body = None if fields is None else json.dumps(fields).encode()
        request = Request(self._address + path, body, self._headers, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return read(response)
        except HTTPError as error:
            with error:
                message = _refusal(error.code, error.read())
            if error.code == 400:
                raise click.UsageError(message) from error
            raise click.ClickException(message) from error
        except HTTPException as error:
            raise click.ClickException(
                f"{self._address} does not answer in HTTP. Install pullstream[http] on the "
                "broker's machine, and pass --ca if the broker serves TLS"
            ) from error
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise click.ClickException(f"{self._address} does not answer: {reason}") from error


def _quoted(text: str) -> str:
    return quote(text, safe="")


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, because urllib would send the token to the other address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(
    ca: bytes | None, cert: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None
) -> OpenerDirector:
    context = ssl.create_default_context(cadata=None if ca is None else ca.decode())
    if cert is not None:
        context.load_cert_chain(cert, key)
    # A broker is on the local network and never behind a proxy.
    return build_opener(ProxyHandler({}), HTTPSHandler(context=context), _NoRedirect)


def _refusal(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"the broker returned HTTP status {status}"
