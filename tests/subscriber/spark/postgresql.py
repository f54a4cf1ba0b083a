"""A PostgreSQL server for tests, from the programs that are installed on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Debian's package libpostgresql-jdbc-java puts the driver here.
DRIVER = Path("/usr/share/java/postgresql.jar")

USER = "etl"
DATABASE = "shop"


def server_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, which Debian does not put on the path."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    # The newest version first.
    folders += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: -int(one.parent.name)
    )
    return next((one for one in folders if (one / "initdb").exists()), None)


@dataclass(frozen=True)
class PostgresqlServer:
    """A running server with an empty database.

    Attributes:
        port: Its port on 127.0.0.1.
        programs: The folder of its programs.
    """

    port: int
    programs: Path

    @property
    def url(self) -> str:
        """The URL of the database for JDBC."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{DATABASE}"

    @property
    def credentials(self) -> dict[str, str]:
        """The variables of the environment from which a job takes its credentials."""
        return {"PULLSTREAM_JDBC_USER": USER, "PULLSTREAM_JDBC_PASSWORD": "x"}

    def query(self, *statements: str) -> list[str]:
        """Return the lines of the results. Each statement is one transaction.

        Raises:
            subprocess.CalledProcessError: A statement has failed.
        """
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER)
        done = subprocess.run(
            [self.programs / "psql", *address, "-qAtv", "ON_ERROR_STOP=1", DATABASE],
            input=";\n".join(statements),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()


@contextmanager
def postgresql_server(programs: Path) -> Iterator[PostgresqlServer]:
    """Start a server for the block.

    Args:
        programs: The folder of its programs; see `server_programs`.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # A server does not run as root, and pytest's folders are private.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        if user is not None:
            shutil.chown(folder, user)

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), *arguments]
            subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd=folder)

        data = f"{folder}/data"
        run("initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8")
        settings = f"-k {folder} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off"
        run("pg_ctl", "-D", data, "-o", settings, "-l", f"{folder}/log", "-w", "start")
        try:
            run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", USER, DATABASE)
            yield PostgresqlServer(port, programs)
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
