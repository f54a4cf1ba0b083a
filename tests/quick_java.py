"""Options of Java for the short runs of Spark that tests start.

`python -m tests.quick_java` writes an archive of Spark's classes into the environment (Java's class
data sharing). With it, an ingestion of 200 messages takes 14 s of CPU time instead of 22 s. Java
ignores an archive that does not fit, for example after another version of PySpark was installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARCHIVE = Path(sys.prefix, "spark-classes.jsa")

# The JVMs are short-lived, so only the quick compiler is used. The other one would not pay off.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def quick_java() -> str:
    """Return the options for a JVM that runs Spark: a driver, an executor, or a daemon."""
    # Spark separates options by spaces.
    if not ARCHIVE.exists() or " " in str(ARCHIVE):
        return QUICK_JAVA
    # Java would print on stdout that an archive does not fit.
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off"


def write_archive() -> int:
    """Write the archive from the classes that one ingestion uses, and return the exit status.

    Tests run without the archive, too, so the status is 0 where PySpark is not installed.
    """
    if importlib.util.find_spec("pyspark") is None:
        print("Without PySpark no archive of Spark's classes is written.")
        return 0
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        # Java would crash with a part of an archive, so only a whole one gets the name.
        part = Path(folder, ARCHIVE.name)
        options = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={part} -Xlog:disable"
        done = subprocess.run(
            [sys.executable, "-m", "tests.subscriber.spark.one_ingestion", folder],
            cwd=ROOT,
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode == 0 and part.exists():
            part.replace(ARCHIVE)
        else:
            print(f"Tests start Spark without an archive of its classes:\n{done.stdout}")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(write_archive())
