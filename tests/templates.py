"""Tables of new SQLite stores, copied from a template: thousands of tests open a store of their own.

A migration takes a tenth of a second of CPU and does the same each time, so a process migrates one
file, and what it opens afterwards begins as a copy. The tests of the stores themselves migrate.
"""

import os
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from anabranch.stores import _database
from anabranch.stores._engines import make_engine, make_file
from anabranch.stores._migrations import migrate
from anabranch.stores._urls import Target, read_url

__all__ = ["copied_tables", "make_template"]


def make_template(path: Path) -> None:
    """Make a migrated file."""
    target = read_url(f"sqlite:///{path}")
    make_file(target)
    engine = make_engine(target)
    with engine.begin() as connection:
        migrate(connection, target.label)
    engine.dispose()


@contextmanager
def copied_tables(template: Path) -> Generator[None]:
    """Have the SQLite stores that this process opens begin as copies of ``template``."""
    content = template.read_bytes()

    def copy_to_file(target: Target) -> None:
        path = Path(str(target.url.database))
        if target.kind == "sqlite" and path.parent.is_dir() and not path.exists():
            # Written beside it, so that no one sees a part; a link fails if another was quicker.
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".template-") as written:
                written.write(content)
                written.flush()
                with suppress(FileExistsError):
                    os.link(written.name, path)
        make_file(target)

    def copy_to_memory(target: Target) -> sa.Engine:
        engine = make_engine(target)
        if target.kind == "memory":

            def fill(connection: sqlite3.Connection, _record: object) -> None:
                with closing(sqlite3.connect(template)) as source:
                    source.backup(connection)

            event.listen(engine, "connect", fill)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_database, "make_file", copy_to_file)
        patch.setattr(_database, "make_engine", copy_to_memory)
        yield
