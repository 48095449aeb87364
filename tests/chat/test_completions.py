"""Completion in a chat: commands, labels, branches, tools, arguments, values."""

from functools import partial
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from anabranch.chat._terminal.line_loop import LineCompleter, candidates, status_line
from tests.chat.sessions import feed, session


async def completed(typed: str) -> list[str]:
    chat = session()
    await feed(chat, "hello", "/label start", "fork one two")
    found = LineCompleter(partial(candidates, chat)).get_completions_async(
        Document(typed), CompleteEvent()
    )
    return [each.text async for each in found]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/comb", ["/combine_leaves"]),
        ("/bra", ["/branch_self"]),
        ("/fork ", ["start", "b1", "b2"]),
        ("/label ", ["start"]),
        ("/unlabel s", ["start"]),
        ("/thread la", ["last"]),
        ("/call ad", ["add"]),
        ("/call add ", ["a=", "b="]),
        ("/add a=1 ", ["b="]),
        ("/branch_self allow_work=", ["allow_work=true", "allow_work=false"]),
        ("/branch_self recombine=llm_v", ["recombine=llm_vote"]),
        ("/config ", ["set"]),
        ("/config set wi", ["width"]),
        ("/help lastf", ["lastfork"]),
        ("hello", []),
        ("/up ", []),
        ("/add a=", []),
    ],
)
async def test_completion_completes_the_word_at_the_cursor(typed: str, found: list[str]) -> None:
    assert await completed(typed) == found


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/attach ~/my", ["~/my pics/"]),
        ("/attach ~/my pi", ["pics/"]),
        ("/attach ~/my pics/", ["pics/a b.png", "pics/c.txt"]),
        ("/attach ~/my pics/a", ["pics/a b.png"]),
        ("/attach '~/my pics/a ", ["b.png'"]),
        ("/load ~/.s", ["~/.secret"]),
        ("/attach ~/none/", []),
    ],
)
async def test_paths_of_files_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, found: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my pics").mkdir()
    for name in ("my pics/a b.png", "my pics/c.txt", ".secret"):
        (tmp_path / name).touch()
    assert await completed(typed) == found


async def test_before_the_first_message_there_are_no_labels() -> None:
    assert await candidates(session(), "/label ") == []


async def test_the_status_says_model_thread_and_place() -> None:
    chat = session()
    assert await status_line(chat) == f"mock · {chat.cursor.thread_id} · at the beginning"
    await feed(chat, "hello", "/label start")
    assert f"mock · {chat.cursor.thread_id} · main line (start)" in await status_line(chat)
    await feed(chat, "fork one two", "/fork b1")
    assert " · b1" in await status_line(chat)
