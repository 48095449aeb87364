"""A keyed first request continues after the death of its worker; otherwise the refusal gives the reason."""

import logging
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch._asking import Host
from anabranch._budget import Limits
from anabranch._durable import CallRecord, CallStore, Job, Lease, Reaper
from anabranch._engine import Finished
from anabranch.errors import CallExpiredError, IdempotencyKeyError, ToolError
from tests.diary import DONE
from tests.durable.harness import UNAVAILABLE, Desk, Live, always, cancelled, live
from tests.durable.stores import Cut, Modelled, Watched
from tests.mcp.modern_rounds import run_round

pytestmark = pytest.mark.usefixtures("nothing_done")


class Ok(BaseModel):
    ok: bool


async def do(key: str) -> str:
    """Asynchronous, since the clock of these tests would run ahead of a thread."""
    DONE.append(key)
    return key


def undo(key: str) -> None:
    DONE.append(f"undo {key}")


@tool(limits=Limits(timeout=100))
async def twice(ctx: BranchContext, what: str = "it") -> list[str]:
    first = await ctx.step(do, f"{what} {ctx.idempotency_key}", undo=undo)
    return [first, await ctx.step(do, f"{what} {ctx.idempotency_key}", undo=undo)]


@tool
async def asks(ctx: BranchContext) -> str:
    await ctx.step(do, "one", undo=undo)
    return (await ctx.elicit(Ok, "Go on?")).action


class Counter:
    """Sends each first request to a new server process, as the edges do."""

    def __init__(self, tool: Any = twice) -> None:
        self.desk = Desk(tool, always(ok=True))

    async def send(
        self, store: CallStore | None, key: str = "k-1", principal: str = "", **arguments: Any
    ) -> Any:
        service = self.desk.service(store)
        tool = self.desk.tool
        given = tool.validate(arguments)
        journal = service.keyed(key, principal, tool, given)
        job = Job(tool, given, Host(), self.desk.job(journal).sink, principal)
        return await run_round(service, job, journal)


async def test_a_call_continues_wherever_its_worker_died() -> None:
    undisturbed = Watched(Modelled())
    await Counter().send(undisturbed)
    for at, name in enumerate(undisturbed.asked):
        for after in (False, True):
            DONE.clear()
            counter, behind = Counter(), Modelled()
            cut = Cut(behind, at, after=after)
            try:
                async with counter.desk.clock.running(1):
                    await counter.send(cut)
            except ToolError:
                assert cut.is_cut
            async with counter.desk.clock.running(1):
                done = await counter.send(behind)
            once = list(dict.fromkeys(DONE))
            assert done == Finished(once), name
            assert len(once) == 2


async def test_a_repeated_first_request_keeps_the_deadline_of_the_first() -> None:
    """A tool's timeout counts from the start of its call, not from a repeated request."""
    counter, behind = Counter(), Modelled()
    with pytest.raises(ToolError, match=UNAVAILABLE):
        await counter.send(Cut(behind, 0, after=True))
    counter.desk.clock.advance(200)
    with pytest.raises(Exception, match="stopped after its timeout of 100 s"):
        await counter.send(behind)
    assert DONE == []


async def test_a_request_waits_one_lease_for_a_dead_worker() -> None:
    counter, behind = Counter(asks), Modelled()
    service = counter.desk.service(behind)
    clock = counter.desk.clock
    journal = service.keyed("k-1", "", asks, {})
    dead = Lease(behind, journal.line, clock, seconds=15)
    opened = await dead.open_round(0, new=_record(counter, journal))
    assert opened is not None
    await dead._stop_renewing()
    begun = clock.now()
    async with clock.running(0.01):
        await counter.send(behind)
    assert 15 <= clock.now() - begun < 30


def _record(counter: Counter, journal: Any) -> Any:
    now = counter.desk.clock.now()
    return CallRecord(journal.line, "asks", "{}", now, now + 900)


@pytest.mark.parametrize("differs", ["arguments", "tool"])
async def test_a_used_key_with_other_arguments_runs_nothing(
    store: CallStore, differs: str, caplog: pytest.LogCaptureFixture
) -> None:
    counter = Counter()
    await counter.send(store)
    before = list(DONE)
    other = Counter(asks) if differs == "tool" else counter
    arguments = {"what": "other"} if differs == "arguments" else {}
    with caplog.at_level(logging.WARNING), pytest.raises(IdempotencyKeyError, match="another"):
        await other.send(store, **arguments)
    assert before == DONE
    assert "idempotency key" in caplog.text


async def test_a_keyed_call_cancelled_live_is_refused_with_its_reason() -> None:
    """The effects were undone when the client left. A new key runs the call again."""
    counter, behind = Counter(asks), Modelled()
    service = counter.desk.service(behind)
    journal = service.keyed("k-1", "", asks, {})
    user = Live("Go on?")
    left = live(counter.desk, behind, user, journal)
    await user.asked.wait()
    await cancelled(left)
    assert DONE == ["one", "undo one"]
    with pytest.raises(IdempotencyKeyError, match="was cancelled, and the effects are undone"):
        await counter.send(behind)
    assert DONE == ["one", "undo one"]


async def test_an_expired_keyed_call_is_reported_as_expired(store: CallStore) -> None:
    counter = Counter(asks)
    await counter.send(store)
    counter.desk.clock.advance(1_000)
    assert await Reaper(counter.desk.service(store), {"asks": asks}).expire() == 1
    with pytest.raises(CallExpiredError, match="has expired"):
        await counter.send(store)
    assert DONE == ["one", "undo one"]
