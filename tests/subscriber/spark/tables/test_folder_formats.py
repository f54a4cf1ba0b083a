"""A folder with a table of one format is refused for another one."""

from __future__ import annotations

import uuid
from itertools import permutations
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pullstream.spark.errors import IngestError
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.folder_formats import check_format
from tests.subscriber.spark.tables.written import COLUMNS, FORMATS, SOURCE, files, put, table


@pytest.mark.parametrize(("there", "given"), list(permutations(FORMATS, 2)))
def test_a_folder_with_a_table_of_another_format_is_refused(
    tmp_path: Path, there: str, given: str
) -> None:
    """The error names the format that is there, and the remedy. Batches may have no rows."""
    folder = tmp_path / "table"
    made = table(there, folder)
    put(made, 1, [1, 2])
    made.commit([], BatchName(SOURCE, 2))
    with pytest.raises(IngestError, match=f"the format is {given}, .*--format {there}"):
        check_format(str(folder), {}, given)
    check_format(str(folder), {}, there)


@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_after_a_job_of_another_format_the_right_one_takes_the_table_again(
    tmp_path: Path, lake: str
) -> None:
    """The wrong job stays refused."""
    folder = tmp_path / "table"
    put(table("parquet", folder), 1, [1])
    table(lake, folder)
    check_format(str(folder), {}, lake)
    with pytest.raises(IngestError, match=f"--format {lake}"):
        check_format(str(folder), {}, "parquet")


@pytest.mark.parametrize("given", FORMATS)
def test_a_folder_without_a_table_is_fit_for_each_format(tmp_path: Path, given: str) -> None:
    """A folder that does not exist stays so."""
    check_format(str(tmp_path / "nothing"), {}, given)
    check_format(str(tmp_path), {}, given)
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_another_format_in_a_bucket_is_refused(s3: dict[str, str]) -> None:
    """By its log, and by the lists of batches."""
    url = f"s3://lake/{uuid.uuid4().hex}"
    check_format(f"{url}/a", s3, "parquet")
    DeltaTable.create(f"{url}/a", COLUMNS, storage_options=s3)
    made = FileTable(f"{url}/b", (), s3)
    made.open(COLUMNS)
    batch = BatchName(SOURCE, 1)
    made.commit(files(made, batch, [1]), batch)
    for folder, there, given in (("a", "delta", "parquet"), ("b", "parquet", "json")):
        with pytest.raises(IngestError, match=f"--format {there}"):
            check_format(f"{url}/{folder}", s3, given)
        check_format(f"{url}/{folder}", s3, there)


@pytest.mark.parametrize("given", FORMATS)
def test_a_misspelled_setting_of_the_store_is_refused_by_name(
    given: str, s3: dict[str, str]
) -> None:
    """For each format, although some libraries ignore it."""
    with pytest.raises(ValueError, match="'aws_endpont'"):
        check_format("s3://lake/orders", {**s3, "aws_endpont": "http://localhost:1"}, given)
