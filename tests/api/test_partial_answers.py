"""A client that answers some of a round's questions: the others are asked again, under the same rules."""

from collections.abc import Mapping
from typing import TypeAlias

from pydantic import BaseModel, JsonValue

from anabranch import BranchContext, Capabilities, ConcurrentElicitError, Limits, tool
from anabranch._asking.host import Host
from anabranch._engine import Answer, Finished, Journal, Notice
from anabranch._opening import Runtime, open_call
from anabranch.tool import Tool

Answers: TypeAlias = Mapping[str, JsonValue]


class Yes(BaseModel):
    yes: bool = True


async def played(
    made: Tool[str], rounds: list[Answers], host: Host | None = None
) -> list[list[str]]:
    """Answer each round as given; return what each round asked, and last what came of it."""

    async def nowhere(_: Notice) -> None: ...

    asked: list[list[str]] = []
    journal = Journal("c", 0.0)
    nothing: Answers = {}
    for answers in [*rounds, nothing]:
        call = open_call(made, {}, journal, host=host or Host(), runtime=Runtime(), sink=nowhere)
        async with call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            asked.append([outcome.value])
            break
        asked.append([ask.step_id for ask in outcome.asks])
        journal = Journal.loads(journal.dumps())
        journal.answer({step_id: Answer(value) for step_id, value in answers.items()})
    return asked


def reply(tokens: int) -> dict[str, JsonValue]:
    return {"content": "ok", "usage": {"output_tokens": tokens}}


async def test_a_sample_that_was_sent_is_not_refused_because_another_one_cost_so_much() -> None:
    """Contract: a replay refuses nothing that was once allowed."""

    @tool(limits=Limits(max_tokens=100))
    async def outer(ctx: BranchContext) -> str:
        both = await ctx.gather(ctx.sample("word " * 40), ctx.sample("word " * 40))
        return " ".join(result.text for result in both)

    asked = await played(
        outer,
        [{"outer/sample.1": reply(90)}, {"outer/sample.2": reply(10)}],
    )
    assert asked == [["outer/sample.1", "outer/sample.2"], ["outer/sample.2"], ["ok ok"]]


async def test_a_question_that_was_shown_is_not_refused_because_another_one_is_open() -> None:
    """Chosen: what is on the person's screen stays there."""

    @tool
    async def outer(ctx: BranchContext) -> str:
        async def second() -> str:
            await ctx.sample("first, the model")
            try:
                return (await ctx.elicit(Yes, "And?", key="second")).action
            except ConcurrentElicitError:
                return "refused"

        one, two = await ctx.gather(ctx.elicit(Yes, "Well?", key="first"), second())
        return f"{one.action} {two}"

    host = Host(Capabilities(concurrent_elicits=False))
    model = "outer/~second#1/sample.1"
    asked = await played(outer, [{model: reply(1)}, {"first": {"action": "decline"}}], host)
    assert asked == [["first", model], ["first"], ["decline refused"]]


async def test_answers_to_what_was_not_asked_change_nothing() -> None:
    """Required: an answer to a question never asked → ignored."""

    @tool
    async def outer(ctx: BranchContext) -> str:
        first = await ctx.sample("one")
        return first.text + (await ctx.sample("two")).text

    early: Answers = {"outer/sample.2": reply(1), "nonsense": {"x": 1}}
    asked = await played(
        outer, [early, {"outer/sample.1": reply(1), **early}, {"outer/sample.2": reply(1)}]
    )
    assert asked == [["outer/sample.1"], ["outer/sample.1"], ["outer/sample.2"], ["okok"]]
