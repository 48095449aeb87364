"""Calls that a framework pauses: the record that it stores, and the answers that continue them."""

import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

from anabranch import BranchContext, tool
from anabranch.adapters._paused_call import (
    AdaptedTool,
    Failed,
    PausedCall,
    as_text,
    next_rounds,
    questions_of,
    without_state,
)
from anabranch.errors import (
    InvalidTokenError,
    OtherVersionError,
    StoreError,
    ToolError,
    UnreachableError,
)
from anabranch.messages import ImageBlock
from anabranch.models import ModelError
from anabranch.rounds import InvalidAnswerError, Returned, Rounds
from anabranch.stores import CallStore
from anabranch.testing import ManualClock
from anabranch.tool import Tool
from tests.durable.stores import Modelled


class Stay(BaseModel):
    nights: int = Field(ge=1, le=30)


begun: list[str] = []


def search() -> str:
    begun.append("search")
    return "found"


@tool
async def book(ctx: BranchContext) -> str:
    await ctx.step(search)
    return (await ctx.elicit(Stay, "How long?")).action


class Guest(BaseModel):
    name: str


@tool
async def name_guest(ctx: BranchContext) -> str:
    return (await ctx.elicit(Guest, "Who?")).action


@tool
async def nap(ctx: BranchContext) -> dict[str, str]:
    await ctx.sleep(86_400)
    return {"is": "awake"}


@tool
async def refuse(ctx: BranchContext) -> str:
    raise ToolError("We are closed.")


@tool
async def fail(ctx: BranchContext) -> str:
    """Fail with an error of an unknown type."""
    raise OSError("a secret")


failures: list[Exception] = []


@tool
async def ask_and_fail(ctx: BranchContext) -> str:
    await ctx.step(hold, undo=release)
    await ctx.elicit(Stay, "How long?")
    if failures:
        raise failures.pop()
    return "done"


def hold() -> str:
    begun.append("hold")
    return "held"


def release(_: str) -> None:
    begun.append("release")


@pytest.fixture(params=["sealed", "stored"])
def store(request: pytest.FixtureRequest) -> CallStore | None:
    return Modelled() if request.param == "stored" else None


@pytest.fixture
def rounds() -> Rounds:
    begun.clear()
    return Rounds(keys=[KEY], clock=ManualClock())


KEY = "a key of the tests, which is long enough"


def accept(nights: int, tool: str = "book") -> dict[str, Any]:
    return {f"{tool}/elicit.1": {"action": "accept", "content": {"nights": nights}}}


async def test_nothing_runs_without_answers(rounds: Rounds) -> None:
    call = PausedCall(book, {}, rounds)
    paused = await call.next()
    assert isinstance(paused, dict)
    assert await call.next(paused) == paused
    assert await call.next(paused, {}) == paused
    assert await call.next(paused, accept(2)) == Returned("accept")
    assert begun == ["search"]


async def test_an_invalid_answer_pauses_again_and_says_why(rounds: Rounds) -> None:
    call = PausedCall(book, {}, rounds)
    paused = await call.next()
    assert isinstance(paused, dict)
    again = await call.next(paused, accept(99))
    assert isinstance(again, dict)
    assert "nights: 99 is greater than the maximum of 30" in again["problem"]
    assert {name: again[name] for name in paused} == paused
    assert without_state(again).keys() == {"questions", "until", "problem"}
    assert await call.next(again, accept(3)) == Returned("accept")


async def test_a_first_round_with_answers_raises_an_error(rounds: Rounds) -> None:
    with pytest.raises(InvalidAnswerError):
        await PausedCall(book, {}, rounds).next(None, accept(2))


async def test_a_sleep_that_has_ended_continues_without_answers(rounds: Rounds) -> None:
    call = PausedCall(nap, {}, rounds)
    asleep = await call.next()
    assert isinstance(asleep, dict)
    assert await call.next(asleep) == asleep
    assert isinstance(rounds.clock, ManualClock)
    rounds.clock.advance(86_400)
    assert await call.next(asleep) == Returned({"is": "awake"})


async def test_an_answer_to_a_call_not_paused_here_is_refused(rounds: Rounds) -> None:
    with pytest.raises(ValueError, match="JSON"):
        await PausedCall(book, {}, rounds).next({"approved": True})


async def test_a_stored_call_ends_with_the_text_that_the_model_reads(rounds: Rounds) -> None:
    adapted = AdaptedTool(book, rounds)
    call = await adapted.begin({}, "ann")
    assert questions_of({"1": call})["1"]["questions"][0]["message"] == "How long?"
    ended = await adapted.advance(call, accept(2), "ann")
    assert ended["text"] == "accept"
    assert questions_of({"1": ended}) == {}
    assert await adapted.advance(ended, accept(3), "ann") == ended


async def test_the_model_reads_why_a_tool_refuses_and_no_other_error(rounds: Rounds) -> None:
    assert (await AdaptedTool(refuse, rounds).begin({}, ""))["text"] == "We are closed."
    with pytest.raises(OSError, match="a secret"):
        await AdaptedTool(fail, rounds).begin({}, "")


@pytest.mark.parametrize("error", [OSError("a secret"), ModelError("a secret")])
async def test_a_tool_that_fails_after_its_question_ends_its_call(
    error: Exception, store: CallStore | None, caplog: pytest.LogCaptureFixture
) -> None:
    adapted = AdaptedTool(ask_and_fail, Rounds(keys=[KEY], store=store))
    begun.clear()
    call = await adapted.begin({}, "ann", "1")
    failures[:] = [error]
    ended = await adapted.advance(call, accept(2, "ask_and_fail"), "ann", "1")
    shown = re.fullmatch(
        r"Error executing tool ask_and_fail \(error ([0-9a-f]{8})\)", ended["text"]
    )
    assert shown
    assert shown[1] in caplog.text
    assert "a secret" in caplog.text
    assert begun == ["hold", "release"]
    assert await adapted.advance(ended, accept(2, "ask_and_fail"), "ann", "1") == ended
    again = await adapted.advance(call, accept(2, "ask_and_fail"), "ann", "1")
    assert "text" in again


async def test_a_tool_that_refuses_after_its_question_ends_its_call(rounds: Rounds) -> None:
    failures[:] = [ToolError("We are closed.")]
    call = PausedCall(ask_and_fail, {}, rounds)
    paused = await call.next()
    assert isinstance(paused, dict)
    assert await call.next(paused, accept(2, "ask_and_fail")) == Failed("We are closed.")


@pytest.mark.parametrize("error", [StoreError("It is locked."), UnreachableError("Away.")])
async def test_a_call_does_not_change_when_its_store_does_not_answer(error: Exception) -> None:
    adapted = AdaptedTool(ask_and_fail, Rounds(keys=[KEY]))
    call = await adapted.begin({}, "ann")
    failures[:] = [error]
    with pytest.raises(type(error)):
        await adapted.advance(call, accept(2, "ask_and_fail"), "ann")
    assert (await adapted.advance(call, accept(2, "ask_and_fail"), "ann"))["text"] == "done"


@dataclass
class Adapted:
    """A framework's tool."""

    name: str
    anabranch: AdaptedTool


async def test_a_call_that_cannot_continue_does_not_block_the_others(rounds: Rounds) -> None:
    adapted = [AdaptedTool(each, rounds) for each in (book, ask_and_fail, book)]
    calls = {str(place): await each.begin({}, "") for place, each in enumerate(adapted)}
    tools = [object(), *(Adapted(each.tool.name, each) for each in adapted)]
    failures[:] = [StoreError("It is locked.")]
    given = {"0": accept(2), "1": accept(2, "ask_and_fail"), "2": accept(2)}
    ended: dict[str, Any] = {}

    async def advance() -> None:
        async for call_id, call in next_rounds(tools, calls, given, ""):
            ended[call_id] = call["text"]

    with pytest.raises(StoreError, match="It is locked"):
        await advance()
    assert ended == {"0": "accept", "2": "accept"}


def asking(message: str, effect: Callable[[], str] = search) -> Tool[str]:
    @tool
    async def book(ctx: BranchContext) -> str:
        """Ask in the words of a version, after the version's effect."""
        await ctx.step(effect)
        return (await ctx.elicit(Stay, message)).action

    return book


async def test_a_call_of_another_version_waits_for_it() -> None:
    store = Modelled()
    old = AdaptedTool(asking("How long?"), Rounds(keys=[KEY], store=store, code_version="1"))
    another = Rounds(keys=[KEY], store=store, code_version="2")
    new = AdaptedTool(asking("How long?", hold), another)
    call = await old.begin({}, "ann", "1")
    with pytest.raises(OtherVersionError):
        await new.advance(call, accept(2), "ann", "1")
    assert (await old.advance(call, accept(2), "ann", "1"))["text"] == "accept"


async def test_a_call_of_another_version_asks_again_in_its_words(store: CallStore | None) -> None:
    old = AdaptedTool(asking("How long?"), Rounds(keys=[KEY], store=store, code_version="1"))
    new = AdaptedTool(asking("How many?"), Rounds(keys=[KEY], store=store, code_version="2"))
    call = await old.begin({}, "ann", "1")
    again = await new.advance(call, accept(2), "ann", "1")
    [question] = again["paused"]["questions"]
    assert question["id"] == "book/elicit.1~2"
    assert "How many?" in question["message"]
    assert "the question was changed" in question["message"]
    given = {question["id"]: accept(2)["book/elicit.1"]}
    assert (await new.advance(again, given, "ann", "1"))["text"] == "accept"


async def test_a_call_past_its_deadline_ends(store: CallStore | None) -> None:
    """Nothing can continue the call, and otherwise the agent would wait for ever."""
    clock = ManualClock()
    adapted = AdaptedTool(book, Rounds(keys=[KEY], store=store, clock=clock, ttl=60))
    call = await adapted.begin({}, "ann", "1")
    clock.advance(100_000)
    with pytest.raises(InvalidTokenError):
        await adapted.advance(call, accept(2), "bob", "1")
    ended = await adapted.advance(call, accept(2), "ann", "1")
    assert ended["text"] == "The call of 'book' has expired. Call the tool again."


async def test_answers_that_are_too_long_are_asked_for_again(rounds: Rounds) -> None:
    adapted = AdaptedTool(name_guest, rounds)
    call = await adapted.begin({}, "")
    named = {"name_guest/elicit.1": {"action": "accept", "content": {"name": "x" * 2**23}}}
    again = await adapted.advance(call, named, "")
    assert "longer than 8388608 bytes" in again["paused"]["problem"]
    named["name_guest/elicit.1"]["content"] = {"name": "Ann"}
    assert (await adapted.advance(again, named, ""))["text"] == "accept"


PNG = b"\x89PNG\r\n\x1a\n"


def photo() -> ImageBlock:
    return ImageBlock(data=b64encode(PNG).decode(), mime_type="image/png")


def test_a_value_is_text() -> None:
    assert as_text("as it is") == "as it is"
    assert as_text({"stay": Stay(nights=2), "tags": {"a"}}) == '{"stay":{"nights":2},"tags":["a"]}'
    assert as_text("\udce9") == "\\udce9"
    assert as_text(None) == "null"
    assert as_text(photo()) == f"(an image: image/png, {len(PNG)} bytes)"
    assert as_text(["Rome", photo()]) == f"Rome\n(an image: image/png, {len(PNG)} bytes)"
