"""Body and headers of a push request: Google's JSON or the bare data, and the token."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.auth import jwt
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.push.envelope import ISSUER, LIFETIME, PushRequest, oidc_token, request
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION

URL = "http://127.0.0.1:8080/push"
NOW = 1_700_000_000.0


def message(**fields: Any) -> bytes:
    made = pubsub.PubsubMessage(message_id="7", **fields)
    made.publish_time.FromJsonString("2023-11-14T22:13:20.125Z")
    return made.SerializeToString()


def posted(
    encoded: bytes, *, dead_letter: bool = False, attempt: int = 1, **config: Any
) -> PushRequest:
    subscription = pubsub.Subscription(name=SUBSCRIPTION)
    subscription.push_config.CopyFrom(pubsub.PushConfig(push_endpoint=URL, **config))
    if dead_letter:
        subscription.dead_letter_policy.max_delivery_attempts = 5
    return request(subscription, encoded, attempt, NOW)


def without_metadata() -> pubsub.PushConfig.NoWrapper:
    return pubsub.PushConfig.NoWrapper()


def with_metadata() -> pubsub.PushConfig.NoWrapper:
    return pubsub.PushConfig.NoWrapper(write_metadata=True)


# ---- wrapped -------------------------------------------------------------------------------------


def test_the_body_of_a_wrapped_push_request_has_the_json_form_of_google_pubsub() -> None:
    """The JSON has all fields of the message, with ID and time in both spellings."""
    made = posted(message(data=b"\xffhello", attributes={"a": "ü"}, ordering_key="k"))
    assert made.url == URL
    assert made.headers == {"User-Agent": "CloudPubSub-Google", "Content-Type": "application/json"}
    assert json.loads(made.body) == {
        "message": {
            "attributes": {"a": "ü"},
            "data": base64.b64encode(b"\xffhello").decode(),
            "messageId": "7",
            "message_id": "7",
            "orderingKey": "k",
            "publishTime": "2023-11-14T22:13:20.125Z",
            "publish_time": "2023-11-14T22:13:20.125Z",
        },
        "subscription": SUBSCRIPTION,
    }


@pytest.mark.parametrize(
    ("fields", "absent"),
    [({"data": b"x"}, {"attributes", "orderingKey"}), ({"attributes": {"a": "1"}}, {"data"})],
)
def test_the_json_body_of_a_push_request_omits_fields_that_the_message_does_not_have(
    fields: Any, absent: set[str]
) -> None:
    """An absent field is omitted instead of sent empty."""
    assert not absent & set(json.loads(posted(message(**fields)).body)["message"])


def test_push_requests_contain_the_delivery_attempt_only_if_a_dead_letter_policy_is_set() -> None:
    """A pull follows the same rule."""
    assert "deliveryAttempt" not in json.loads(posted(message(data=b"x"), attempt=3).body)
    body = json.loads(posted(message(data=b"x"), attempt=3, dead_letter=True).body)
    assert body["deliveryAttempt"] == 3


# ---- unwrapped -----------------------------------------------------------------------------------


def test_the_body_of_an_unwrapped_push_request_is_the_message_data() -> None:
    """Nothing else is sent unless requested."""
    made = posted(
        message(data=b"\x00raw", attributes={"a": "1"}, ordering_key="k"),
        no_wrapper=without_metadata(),
    )
    assert (made.body, made.headers) == (b"\x00raw", {"User-Agent": "CloudPubSub-Google"})


def test_an_unwrapped_push_request_may_have_attributes_and_metadata_as_http_headers() -> None:
    """The broker's headers have their prefix. Attributes have their own names."""
    made = posted(
        message(data=b"x", attributes={"Content-Type": "text/plain", "a": "1"}, ordering_key="k"),
        no_wrapper=with_metadata(),
    )
    assert made.headers == {
        "Content-Type": "text/plain",
        "a": "1",
        "x-goog-pubsub-subscription-name": SUBSCRIPTION,
        "x-goog-pubsub-message-id": "7",
        "x-goog-pubsub-publish-time": "2023-11-14T22:13:20.125Z",
        "x-goog-pubsub-ordering-key": "k",
        "User-Agent": "CloudPubSub-Google",
    }


def test_an_unwrapped_push_request_of_an_unkeyed_message_has_no_ordering_key_header() -> None:
    """A missing key differs from an empty one."""
    made = posted(message(data=b"x"), no_wrapper=with_metadata())
    assert "x-goog-pubsub-ordering-key" not in made.headers


@pytest.mark.parametrize(
    "attributes",
    [
        {"a": "1\r\nX-Injected: yes"},
        {"a\r\nX-Injected": "yes"},
        {"with space": "1"},
        {"ü": "1"},
        {"Host": "elsewhere"},
        {"content-length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"AUTHORIZATION": "Bearer mine"},
        {"X-Goog-Pubsub-Message-Id": "8"},
        {"user-agent": "me"},
        {"Cookie": "session=1"},
        {"Set-Cookie": "session=1"},
        {"X-Forwarded-For": "10.0.0.1"},
        {"x-forwarded-client-cert": "By=x"},
        {"Forwarded": "for=10.0.0.1"},
        {"X-Real-IP": "10.0.0.1"},
        {"X_REAL_IP": "10.0.0.1"},
        {"Proxy-Authorization": "Basic x"},
        {"Proxy-Connection": "close"},
        {"TE": "trailers"},
        {"Upgrade": "h2c"},
        {"HTTP2-Settings": "x"},
        {"X-Goog-Iap-Jwt-Assertion": "x"},
        {"Sec-Fetch-Site": "same-origin"},
    ],
)
def test_push_requests_omit_message_attributes_that_are_invalid_as_http_headers(
    attributes: dict[str, str],
) -> None:
    """The message is sent without them."""
    plain = posted(message(data=b"x"), no_wrapper=with_metadata())
    made = posted(message(data=b"x", attributes=attributes), no_wrapper=with_metadata())
    assert made == plain


@given(st.dictionaries(st.text(), st.text()), st.text())
def test_attributes_and_ordering_keys_cannot_inject_http_headers_into_a_push_request(
    attributes: dict[str, str], key: str
) -> None:
    """The text of a publisher cannot add headers or lines."""
    made = posted(
        message(data=b"x", attributes=attributes, ordering_key=key), no_wrapper=with_metadata()
    )
    for name, value in made.headers.items():
        assert name.isascii()
        assert name.isprintable()
        assert not set(name + value) & set("\r\n\0")


# ---- token ---------------------------------------------------------------------------------------


def claims(**oidc: str) -> Any:
    made = posted(message(data=b"x"), oidc_token=pubsub.PushConfig.OidcToken(**oidc))
    scheme, _, token = made.headers["Authorization"].partition(" ")
    assert scheme == "Bearer"
    return jwt.decode(token, verify=False)  # type: ignore[no-untyped-call]


def test_the_token_of_a_push_request_has_the_claims_of_google_s_tokens() -> None:
    """The claims have issuer, audience and expiry. google-auth can read the token."""
    content = claims(service_account_email="pusher@p.iam.gserviceaccount.com", audience="me")
    assert content.pop("sub") == content.pop("azp")
    assert content == {
        "aud": "me",
        "email": "pusher@p.iam.gserviceaccount.com",
        "email_verified": True,
        "exp": NOW + 3600,
        "iat": NOW,
        "iss": "https://accounts.google.com",
    }


def test_the_audience_of_a_push_token_is_the_push_endpoint_by_default() -> None:
    """Google's service does the same."""
    assert claims(service_account_email="a@b")["aud"] == URL


def test_a_push_token_is_marked_as_unsigned() -> None:
    """The token cannot be mistaken for a proof of identity."""
    made = posted(message(data=b"x"), oidc_token=pubsub.PushConfig.OidcToken(audience="me"))
    token = made.headers["Authorization"].removeprefix("Bearer ")
    assert jwt.decode_header(token)["alg"] == "none"  # type: ignore[no-untyped-call]
    assert token.endswith(".")


def test_unwrapped_push_requests_have_an_authorization_header_with_the_push_token() -> None:
    """The token is in the same header."""
    token = pubsub.PushConfig.OidcToken(audience="me")
    made = posted(message(data=b"x"), oidc_token=token, no_wrapper=with_metadata())
    assert made.headers["Authorization"].startswith("Bearer ")


def decoded(segment: str) -> dict[str, Any]:
    text = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    content: dict[str, Any] = json.loads(text)
    return content


def push_config(email: str, audience: str = "") -> pubsub.PushConfig:
    oidc = {"service_account_email": email, "audience": audience}
    return pubsub.PushConfig(push_endpoint="http://localhost/push", oidc_token=oidc)


def test_an_oidc_token_of_a_push_request_has_google_s_claims() -> None:
    """The endpoint is the audience unless the subscription has another one."""
    header, claims, signature = oidc_token(push_config("a@example.com"), 1_700_000_000.9).split(".")
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
    assert decoded(oidc_token(push_config("a@example.com", "us"), 0).split(".")[1])["aud"] == "us"


def test_each_service_account_has_a_stable_subject_in_its_oidc_token() -> None:
    """Google's tokens have the number of the account there."""
    subjects = [
        decoded(oidc_token(push_config(email), 0).split(".")[1])["sub"]
        for email in ("a@example.com", "b@example.com", "a@example.com")
    ]
    assert subjects[0] == subjects[2] != subjects[1]
