"""Runs of a chat with calls that other code has started: each waits for a worker of that version."""

import asyncio
from functools import partial

import pytest

from anabranch.chat._web.open_work import retry
from anabranch.cli import main
from anabranch.engines import InProcessEngine
from anabranch.stores import open_run_events, open_store
from tests.chat.versions import (
    answer,
    at_version,
    book_1,
    book_2,
    book_3,
    end_of,
    open_runs,
    waiting_for_version_1,
)
from tests.chat.web import message, run
from tests.diary import DONE

pytestmark = pytest.mark.usefixtures("nothing_done")


async def test_a_run_waits_for_a_worker_of_the_version_of_its_call(url: str) -> None:
    process = partial(at_version, url, InProcessEngine())
    async with waiting_for_version_1(url, process) as new:
        [waits] = await open_runs(url)
        assert (waits.state, waits.version, waits.attempt) == ("waiting", "1", 0)
        assert (await new.get("/threads/t1/tree")).json()["running"] is True
        assert DONE == ["reserved"]

        async with process(book_1, "1"):
            events = await end_of(new, "r2")
    assert DONE == ["reserved", "charged"]
    assert events[-1]["outcome"] == {"type": "success"}
    notices = [
        each["value"]["message"] for each in events if each.get("name") == "anabranch.notice"
    ]
    assert notices == ["This waits for a process with version '1' of the tools' code."]


async def test_code_of_another_version_continues_a_run_that_does_not_differ(url: str) -> None:
    engine = InProcessEngine()
    async with at_version(url, engine, book_1, "1") as old:
        asked = await run(old, message("/book"))
    async with at_version(url, engine, book_1, "2") as new:
        await answer(new, asked)
        await end_of(new, "r2")
    assert DONE == ["reserved", "charged"]


async def test_an_answer_to_words_of_other_code_is_refused_and_asked_for_again(url: str) -> None:
    engine = InProcessEngine()
    async with at_version(url, engine, book_1, "1") as old:
        asked = await run(old, message("/book"))
    async with at_version(url, engine, book_3, "2") as new:
        await answer(new, asked)
        again = await end_of(new, "r2")
        [interrupt] = again[-1]["outcome"]["interrupts"]
        assert "How many seats?" in interrupt["message"]
        assert "the question was changed after it had been shown" in interrupt["message"]
        assert DONE == ["reserved"]
        await answer(new, again, "r3")
        assert (await end_of(new, "r3"))[-1]["outcome"] == {"type": "success"}
    assert DONE == ["reserved", "charged"]


async def test_a_run_that_waits_for_a_version_is_stopped_by_any_process(url: str) -> None:
    async with waiting_for_version_1(url, partial(at_version, url, InProcessEngine())) as new:
        assert (await new.post("/threads/t1/stop", json={})).json() == {"stopped": True}
        events = await end_of(new, "r2")
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert DONE == ["reserved"]


async def test_any_worker_tries_a_run_that_is_retried(url: str) -> None:
    """The worker's code may run the same way under another version."""
    async with waiting_for_version_1(url, partial(at_version, url, InProcessEngine())):
        pass
    events = open_run_events(url)
    assert await retry(events, "t1", 1.0)
    await events.close()
    async with at_version(url, InProcessEngine(), book_1, "3") as newest:
        await end_of(newest, "r2")
    assert DONE == ["reserved", "charged"]


async def test_a_conversation_continues_when_its_call_is_undone_on_request(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with waiting_for_version_1(url, partial(at_version, url, InProcessEngine())):
        pass
    store = open_store(url)
    [record] = await store.calls(2)
    await store.close()

    async def undo(code: str) -> int:
        target = f"tests.chat.versions:{code}"
        command = ["calls", "undo", record.call_id, target, "--yes", "--store", url]
        return await asyncio.get_running_loop().run_in_executor(None, main, command)

    assert await undo("book_2") == 1
    assert "differs from the record" in capsys.readouterr().err
    assert DONE == ["reserved"]
    assert await undo("book_1") == 0
    assert DONE == ["reserved", "not reserved"]
    runs = open_run_events(url)
    assert await retry(runs, "t1", 1.0)
    await runs.close()
    async with at_version(url, InProcessEngine(), book_2, "2") as newest:
        events = await end_of(newest, "r2")
    [result] = [each for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert "has expired" in result["content"]
    assert DONE == ["reserved", "not reserved"]
