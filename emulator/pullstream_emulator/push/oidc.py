"""The token that a push request carries if its subscription asks for one.

It has the form and the claims of Google's tokens, for testing an endpoint's code, but no signature
(RFC 7519, section 6): it proves nothing, and no verifier accepts it as one of Google's.
"""

from __future__ import annotations

import base64
import hashlib
import json

from pullstream_protocol.messages import pubsub_pb2 as pubsub

ISSUER = "https://accounts.google.com"
LIFETIME = 3600


def token(config: pubsub.PushConfig, now: float) -> str:
    """Return an unsigned JWT for a config with `oidc_token`, issued at wall time `now`."""
    email = config.oidc_token.service_account_email
    # Google's subject is the account's number, which is unknown here; this value is as constant.
    subject = str(int.from_bytes(hashlib.blake2s(email.encode(), digest_size=8).digest(), "big"))
    claims = {
        "aud": config.oidc_token.audience or config.push_endpoint,
        "azp": subject,
        "email": email,
        "email_verified": True,
        "exp": int(now) + LIFETIME,
        "iat": int(now),
        "iss": ISSUER,
        "sub": subject,
    }
    return f"{_segment({'alg': 'none', 'typ': 'JWT'})}.{_segment(claims)}."


def _segment(content: dict[str, object]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
