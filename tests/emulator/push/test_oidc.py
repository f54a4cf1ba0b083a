"""The token of a push request has the claims of Google's tokens, and no signature."""

from __future__ import annotations

import base64
import json
from typing import Any

from pullstream_emulator.push.oidc import ISSUER, LIFETIME, token
from pullstream_protocol.messages import pubsub_pb2 as pubsub


def decoded(segment: str) -> dict[str, Any]:
    text = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    content: dict[str, Any] = json.loads(text)
    return content


def config(email: str, audience: str = "") -> pubsub.PushConfig:
    oidc = {"service_account_email": email, "audience": audience}
    return pubsub.PushConfig(push_endpoint="http://localhost/push", oidc_token=oidc)


def test_the_claims() -> None:
    """The endpoint is the audience unless the subscription has another one."""
    header, claims, signature = token(config("a@example.com"), 1_700_000_000.9).split(".")
    assert decoded(header) == {"alg": "none", "typ": "JWT"}
    assert signature == ""
    content = decoded(claims)
    subject = content.pop("sub")
    assert subject.isdigit()
    assert content == {
        "aud": "http://localhost/push",
        "azp": subject,
        "email": "a@example.com",
        "email_verified": True,
        "exp": 1_700_000_000 + LIFETIME,
        "iat": 1_700_000_000,
        "iss": ISSUER,
    }
    assert decoded(token(config("a@example.com", "us"), 0).split(".")[1])["aud"] == "us"


def test_each_account_has_its_subject() -> None:
    """It stays the same, as the number of an account does."""
    subjects = [
        decoded(token(config(email), 0).split(".")[1])["sub"]
        for email in ("a@example.com", "b@example.com", "a@example.com")
    ]
    assert subjects[0] == subjects[2] != subjects[1]
