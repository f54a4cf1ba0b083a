"""The constructor of every client names and describes the arguments of the connection."""

from __future__ import annotations

import inspect
import re

import pytest

from pullstream import AsyncSubscriberClient, SubscriberClient, TopicAdminClient
from pullstream.rpc.connecting_client import ConnectingClient
from pullstream.rpc.endpoint import ConnectionArguments

CLIENTS = [SubscriberClient, AsyncSubscriberClient, TopicAdminClient]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_constructor_argument_is_in_its_signature_and_docstring(
    client: type[ConnectingClient],
) -> None:
    """Editors show the signature and the docstring."""
    named = inspect.signature(client).parameters
    assert named.keys() == {"channel", *ConnectionArguments.__annotations__}
    assert all(parameter.default is None for parameter in named.values())
    described = re.findall(r"^    (\w+): ", inspect.getdoc(client.__init__) or "", re.MULTILINE)
    assert {*named} <= {*described}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_refuses_a_channel_together_with_any_other_connection_argument(
    client: type[ConnectingClient],
) -> None:
    """The error names them."""
    with pytest.raises(ValueError, match="leave out endpoint") as raised:
        client(channel=object(), token="t")  # type: ignore[arg-type]
    assert all(name in str(raised.value) for name in ConnectionArguments.__annotations__)
