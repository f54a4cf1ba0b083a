"""Output of one of several processes that write to the same place."""

from __future__ import annotations

import io
import logging
import traceback

from pullstream.worker.labelled_output import LabelledOutput
from tests.threads import run_on_threads


def test_each_output_line_of_a_worker_process_begins_with_the_label_of_the_process() -> None:
    stream = io.StringIO()
    output = LabelledOutput(stream, "[2] ")
    print("a", "b", file=output)
    print("c\n\nd", file=output)
    assert stream.getvalue() == "[2] a b\n[2] c\n[2] \n[2] d\n"


def test_labelled_worker_output_writes_a_line_when_the_line_is_complete() -> None:
    stream = io.StringIO()
    output = LabelledOutput(stream, "[2] ")
    output.write("a")
    assert stream.getvalue() == ""
    output.write("b\nc")
    assert stream.getvalue() == "[2] ab\n"


def test_labelled_worker_output_writes_an_incomplete_line_at_the_end_of_the_process() -> None:
    stream = io.StringIO()
    output = LabelledOutput(stream, "[2] ")
    output.write("a\nb")
    output.finish()
    assert stream.getvalue() == "[2] a\n[2] b\n"


def test_a_program_can_reconfigure_the_labelled_output_stream_of_a_worker() -> None:
    """Many programs do so for the encoding or for the buffering of lines."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    output = LabelledOutput(stream, "")
    output.reconfigure(encoding="utf-8")
    assert output.encoding == "utf-8"


def test_labelled_worker_output_keeps_the_lines_printed_by_several_threads_apart() -> None:
    stream = io.StringIO()
    output = LabelledOutput(stream, "")
    output.write("a")
    run_on_threads(lambda: output.write("other\n"))
    output.write("b\n")
    assert stream.getvalue() == "other\nab\n"


def test_labelled_worker_output_labels_every_line_of_a_logged_traceback() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(LabelledOutput(stream, "[1] "))
    try:
        raise ValueError("no luck")
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": None})
        record.exc_text = traceback.format_exc()
        handler.handle(record)
    lines = stream.getvalue().splitlines()
    assert len(lines) > 3
    assert all(line.startswith("[1] ") for line in lines)


def test_the_labelled_output_of_a_worker_has_the_attributes_of_the_underlying_stream() -> None:
    with open("/dev/null", "w", encoding="utf-8") as stream:
        output = LabelledOutput(stream, "")
        assert (output.fileno(), output.isatty()) == (stream.fileno(), False)
        assert output.encoding == "utf-8"
        assert output.writable()
