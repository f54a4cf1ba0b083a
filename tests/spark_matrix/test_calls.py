"""Spark calls a streaming source in the recorded order; `make spark-matrix` asks other versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pyspark
import pytest

from pullstream.spark.local.java import ensure_java
from pullstream.spark.local.worker_python import worker_settings

from . import calls
from .recorded_calls import CALLS, recorded

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_spark_calls_a_streaming_source_in_the_recorded_order(tmp_path: Path) -> None:
    assert pyspark.__version__ in CALLS, "record the calls of this version by calls.py"
    # Spark's workers import from its archive otherwise, which takes a second longer for each. The
    # function sets a variable, which later tests must not see.
    with patch.dict(os.environ):
        worker_settings()
        variables = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    ensure_java(variables)
    done = subprocess.run(
        [sys.executable, calls.__file__, str(tmp_path)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == recorded(pyspark.__version__)
