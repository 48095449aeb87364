"""A full backlog refuses new work with a time to retry; it accepts answers and work that has started."""

import math
from dataclasses import replace
from typing import Any, cast

import httpx2
import pytest

from anabranch._durable import RunEvents, TurnRecord, TurnState
from anabranch.chat import make_chat_app
from anabranch.chat._web.open_work import COME_BACK, FRESH, Backlog
from anabranch.cli import main
from anabranch.engines import InProcessEngine
from anabranch.stores import open_run_events
from tests.agents.memory import MemoryTrees
from tests.chat.shared_runs import Held, process, until_said
from tests.chat.web import message, model, on_both_databases, resume, run
from tests.durable.stores import Modelled
from tests.suites.turn_samples import put_turn, running


class Now:
    """A clock of seconds that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def pass_(self, seconds: float = FRESH) -> None:
        self.seconds += seconds


async def send(client: httpx2.AsyncClient, body: dict[str, Any]) -> httpx2.Response:
    """Send a run, and do not wait for its events."""
    return await client.post("/agui", json=body, headers={"Accept": "application/json"})


async def begun(client: httpx2.AsyncClient, number: int, text: str = "hello") -> int:
    body = message(text, thread=f"t{number}", run=f"r{number}")
    return (await send(client, body)).status_code


async def threads(client: httpx2.AsyncClient) -> set[str]:
    return {each["id"] for each in (await client.get("/threads")).json()}


@on_both_databases
async def test_a_run_beyond_the_limit_is_refused_and_not_stored(url: str) -> None:
    now = Now()
    shared: dict[str, Any] = {"engine": InProcessEngine(), "concurrency": None, "max_backlog": 2}
    async with process(url, **shared) as one, process(url, now=now, **shared) as two:
        assert [await begun(one, number) for number in (1, 2)] == [202, 202]
        for client in (one, two):
            refused = await send(client, message("hello", thread="t3", run="r3"))
            assert (refused.status_code, refused.headers["retry-after"]) == (429, f"{COME_BACK}")
            assert refused.json()["error"].startswith("Too many messages already wait")
        assert await threads(one) == {"t1", "t2"}
        assert await begun(two, 2) == 202  # the same run again, which has started
        await one.post("/threads/t1/stop", json={})
        assert await begun(two, 3) == 429  # the count that was read is used for a second
        now.pass_()
        assert await begun(two, 3) == 202
        assert await threads(two) == {"t1", "t2", "t3"}


async def test_an_answer_is_never_refused(url: str) -> None:
    async with process(url) as worker:
        [interrupt] = (await run(worker, message("reserve")))[-1]["outcome"]["interrupts"]
    async with process(url, engine=InProcessEngine(), concurrency=None, max_backlog=1) as full:
        assert [await begun(full, number) for number in (7, 8)] == [202, 429]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        assert (await send(full, resume(entry))).status_code == 202


async def test_another_answer_to_an_answered_question_is_new_work(url: str) -> None:
    calls: dict[str, Any] = {"calls": Modelled(), "recorded_calls": "values"}
    async with process(url, max_backlog=1, **calls) as client:
        [interrupt] = (await run(client, message("reserve")))[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        await run(client, resume(entry))
        [call] = (await client.get("/calls")).json()["calls"]
        path = f"/calls/{call['id']}"
        steps = (await client.get(path)).json()["steps"]
        [asked] = [each["id"] for each in steps if each["kind"] == "elicit"]
        events = open_run_events(url)
        await put_turn(events, "other", READY)
        other = {"step_id": asked, "action": "accept", "content": {"row": 4}}
        refused = await client.post(f"{path}/answers", json=other)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, f"{COME_BACK}")
        await events.move("other", READY, None)
        await events.close()


async def test_a_run_that_waits_in_its_own_process_counts(url: str) -> None:
    held = Held()
    async with process(url, replies=held.model(), concurrency=1, max_backlog=1) as client:
        assert await begun(client, 1) == 202
        await until_said(client)
        assert [await begun(client, number) for number in (2, 3)] == [202, 429]


READY = replace(running("r"), state=TurnState.READY, owner="")


class Stored:
    """Events of a store in which some runs wait, and a worker has one."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.read = 0

    async def overdue(self, now: float, limit: int) -> list[tuple[str, TurnRecord]]:
        assert now == math.inf
        self.read += 1
        waiting = [(f"t{number}", READY) for number in range(self.waiting)]
        others = [("busy", running("r")), ("for other code", replace(READY, version="1.2"))]
        return [*others, *waiting][:limit]


async def test_the_store_is_read_once_a_second_and_when_the_limit_is_reached_by_counting() -> None:
    stored, now = Stored(0), Now()
    backlog = Backlog(cast("RunEvents", stored), 3, lambda: 0, now)
    assert [await backlog.add() for _ in range(3)] == [0, 0, 0]
    assert stored.read == 1
    stored.waiting = 1  # the other runs were taken immediately
    assert [await backlog.add() for _ in range(2)] == [0, 0]
    assert stored.read == 2
    stored.waiting = 3
    assert [await backlog.add() for _ in range(5)] == [COME_BACK] * 5
    assert stored.read == 3
    stored.waiting = 0
    now.pass_()
    assert await backlog.add() == 0
    assert stored.read == 4


async def test_without_a_limit_nothing_is_read() -> None:
    stored = Stored(1_000)
    backlog = Backlog(cast("RunEvents", stored), None, lambda: 0, Now())
    assert [await backlog.add() for _ in range(9)] == [0] * 9
    assert stored.read == 0


def test_a_limit_of_no_calls_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make_chat_app(MemoryTrees(), model(), max_backlog=0)
    assert main(["web", "--max-backlog", "0"]) == 2
    assert "for --max-backlog. Give a number from 1 up." in capsys.readouterr().err
