"""A broker that listens on more than loopback without protection warns."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullstream_emulator.access import Tls
from pullstream_emulator.access.options import exposure_warning
from tests.emulator.access.principals import new_access
from tests.emulator.certificates import new_identity


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "nowhere.invalid"])
def test_a_broker_that_listens_on_loopback_logs_no_exposure_warning(host: str) -> None:
    """An address on which nothing can listen needs none either."""
    assert exposure_warning(host, None, None) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", ""])
def test_a_broker_on_a_public_address_without_tls_or_tokens_warns_of_each_exposure(
    host: str, tmp_path: Path
) -> None:
    """The warning names the missing protection. With tokens and TLS there is no warning."""
    access = new_access()
    certificate, key = new_identity("broker").write(tmp_path)
    tls, mutual = Tls(certificate, key), Tls(certificate, key, certificate)
    warnings = {
        "neither": exposure_warning(host, None, None) or "",
        "tls": exposure_warning(host, tls, None) or "",
        "access": exposure_warning(host, None, access) or "",
    }
    said = {k: ("without TLS" in w, "without tokens" in w) for k, w in warnings.items()}
    assert said == {"neither": (True, True), "tls": (False, True), "access": (True, False)}
    assert exposure_warning(host, tls, access) is None
    assert exposure_warning(host, mutual, None) is None
