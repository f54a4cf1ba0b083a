"""`python -m pullstream.worker FD`: one child, started by `pullstream worker`.

The job is sent over the control pipe and not as an argument. It may contain a token, and every user
who lists the processes sees the arguments.
"""

import io
import socket
import sys

from .child import run
from .control_pipe import ControlPipe
from .job import Job

if isinstance(sys.stdout, io.TextIOWrapper):
    # Flush after each line, also when stdout is a pipe, because other children write there, too.
    sys.stdout.reconfigure(line_buffering=True)
control_pipe = ControlPipe(socket.socket(fileno=int(sys.argv[1])))
job = control_pipe.receive_job()
# None: the parent has already ended.
sys.exit(0 if job is None else run(Job.from_json(job), control_pipe))
