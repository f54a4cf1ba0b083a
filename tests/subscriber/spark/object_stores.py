"""Object stores on this machine, as fixtures: S3, Azure's and Google's."""

from __future__ import annotations

import base64
import hmac
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.optional_tools import missing
from tests.subscriber.spark import gcs_server

# The key of every Azurite, which its documentation names.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """Yield the settings of a local S3 server with the bucket `lake`."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    client.create_bucket(Bucket="lake")
    yield {
        "aws_endpoint": endpoint,
        "aws_region": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_allow_http": "true",
    }
    server.stop()


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the settings of a local Azure server with the container `lake`."""
    npx = shutil.which("npx")
    if npx is None:
        missing("node", "npx is not installed")
    assert npx is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("azurite")
    azurite = [npx, "--yes", "--package", "azurite@3", "azurite-blob", "--skipApiVersionCheck"]
    process = subprocess.Popen(
        [*azurite, "--silent", "--location", str(folder), "--blobPort", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _create_container(port, "lake")
    yield {
        "azure_storage_account_name": "devstoreaccount1",
        "azure_storage_account_key": AZURITE_KEY,
        "azure_storage_endpoint": f"http://127.0.0.1:{port}/devstoreaccount1",
        "azure_allow_http": "true",
    }
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


@pytest.fixture(scope="session")
def gcs() -> Iterator[dict[str, str]]:
    """Yield the settings of a local server of Google Cloud Storage with the bucket `lake`."""
    program = shutil.which("fake-gcs-server")
    if program is None:
        missing("gcs", "go install github.com/fsouza/fake-gcs-server@latest")
        return
    with gcs_server.running(program) as settings:
        yield settings


def _create_container(port: int, name: str) -> None:
    """Create a container as soon as the server listens."""
    date = formatdate(SYSTEM_CLOCK.now(), usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2021-12-02\n"
    resource = f"/devstoreaccount1/devstoreaccount1/{name}\nrestype:container"
    text = "PUT" + "\n" * 12 + headers + resource
    signature = hmac.digest(base64.b64decode(AZURITE_KEY), text.encode(), "sha256")
    authorization = f"SharedKey devstoreaccount1:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/devstoreaccount1/{name}?restype=container",
        headers={"x-ms-date": date, "x-ms-version": "2021-12-02", "Authorization": authorization},
        method="PUT",
    )
    deadline, pause = SYSTEM_CLOCK.monotonic() + 90, threading.Event()
    while True:
        try:
            urllib.request.urlopen(request).close()
            return
        except ConnectionError as error:
            refused: Exception = error
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
            refused = error
        if SYSTEM_CLOCK.monotonic() > deadline:
            raise refused
        pause.wait(0.1)
