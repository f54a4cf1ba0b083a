"""Record the order of Spark's calls to a streaming data source, without pullstream.

    python calls.py FOLDER

Prints a list of calls for each of four runs on one checkpoint, as JSON: a run of three batches, one
that fails in the next batch, one that repeats it and has one more, and one with availableNow and
two more. Calls that are repeated while there is no data are there once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


def recording_source(calls: str) -> type[DataSource]:
    """Return a source with one row in each batch, which appends its calls to a file."""

    def end() -> int:
        return int(Path(calls + ".end").read_text(encoding="utf-8"))

    class Reader(DataSourceStreamReader):
        def note(self, *words: Any) -> None:
            texts = [str(one["n"]) if isinstance(one, dict) else one for one in words]
            with Path(calls).open("a", encoding="utf-8") as file:
                file.write(" ".join(texts) + "\n")

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            self.note("initialOffset")
            return {"n": 0}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            self.note("partitions", start, end)
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

        def commit(self, end: dict[str, int]) -> None:
            self.note("commit", end)

        def stop(self) -> None:
            self.note("stop")

    class Old(Reader):
        def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
            self.note("latestOffset")
            given = Path(calls + ".given")
            number = min(int(given.read_text(encoding="utf-8")) + 1, end())
            given.write_text(str(number), encoding="utf-8")
            return {"n": number}

    class New(Reader):
        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
            self.note("latestOffset", start)
            return {"n": min(start["n"] + 1, end())}

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            from pyspark.sql.streaming.datasource import ReadAllAvailable

            self.note("getDefaultReadLimit")
            return ReadAllAvailable()

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "recorded"

        def schema(self) -> str:
            return "n INT"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            try:
                from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
            except ImportError:
                return Old()

            class Newest(New, SupportsTriggerAvailableNow):
                def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
                    self.note("prepareForTriggerAvailableNow")

            return Newest()

    return Source


def main() -> None:
    folder = Path(sys.argv[1])
    calls = folder / "calls"
    (folder / "calls.given").write_text("0", encoding="utf-8")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    spark.dataSource.register(recording_source(str(calls)))

    def run(until: int, fails_at: int | None = None, **trigger: Any) -> list[str]:
        (folder / "calls.end").write_text(str(until), encoding="utf-8")

        def take(rows: DataFrame, batch: int) -> None:
            rows.collect()
            if batch == fails_at:
                raise ValueError("as asked")

        writer = spark.readStream.format("recorded").load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = (writer.trigger(**trigger) if trigger else writer).start()
        with suppress(PySparkException):
            if trigger:
                query.awaitTermination(60)
            else:
                query.processAllAvailable()
        query.stop()
        for _ in range(50):
            found = calls.read_text(encoding="utf-8").splitlines()
            if found[-1] == "stop":
                break
            threading.Event().wait(0.1)
        calls.unlink()
        return [line for line, before in zip(found, ["", *found], strict=False) if line != before]

    print(json.dumps([run(3), run(4, fails_at=3), run(5), run(7, availableNow=True)]))
    spark.stop()


if __name__ == "__main__":
    main()
