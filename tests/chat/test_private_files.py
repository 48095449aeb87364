"""The files that a chat writes next to its database are as private as the database."""

import os
from pathlib import Path

import pytest

from anabranch.chat._terminal.thread_commands import write_thread_file


@pytest.fixture(autouse=True)
def open_mask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_saved_conversation_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    write_thread_file(path, b"{}")
    assert path.stat().st_mode & 0o777 == 0o600
