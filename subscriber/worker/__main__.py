"""`python -m subscriber.worker FD JOB`: one child of `pullstream worker`, which starts it so."""

import io
import socket
import sys

from .child import run
from .job import Job
from .line import Line

if isinstance(sys.stdout, io.TextIOWrapper):
    # Whole lines as they come, also into a pipe: other children write there, too.
    sys.stdout.reconfigure(line_buffering=True)
sys.exit(run(Job.from_json(sys.argv[2]), Line(socket.socket(fileno=int(sys.argv[1])))))
