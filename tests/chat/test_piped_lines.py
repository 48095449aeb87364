"""The lines of a chat that come through a pipe."""

import asyncio
import os
import threading

import pytest

from anabranch.chat._terminal.input_lines import piped_lines
from tests.patience import PATIENCE


def test_a_pipe_whose_lines_are_left_ends_quietly_with_its_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\nthree\n")
    os.close(writer)

    async def chat() -> list[threading.Thread]:
        assert await piped_lines(reader).next("> ") == "one"
        return [each for each in threading.enumerate() if each.name == "anabranch chat input"]

    for thread in asyncio.run(chat()):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    os.close(reader)
    assert failed == []
