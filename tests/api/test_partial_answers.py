"""A client answers some questions of a round: the next round asks the others under the same rules."""

from collections.abc import Mapping
from typing import TypeAlias

from pydantic import BaseModel, JsonValue

from anabranch import BranchContext, Capabilities, Limits, tool
from anabranch._asking import Host
from anabranch._engine import Answer, Finished, Journal, Notice
from anabranch.errors import BranchTokenError, ConcurrentElicitError, StepFailed, error_to_json
from anabranch.tool import Runtime, Tool, open_call

Answers: TypeAlias = Mapping[str, JsonValue | StepFailed]


class Yes(BaseModel):
    yes: bool = True


async def played(
    made: Tool[str], rounds: list[Answers], host: Host | None = None
) -> list[list[str]]:
    """Answer each round as given; return the questions of each round, and last the result."""

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
        journal.answer({step_id: to_answer(value) for step_id, value in answers.items()})
    return asked


def to_answer(value: JsonValue | StepFailed) -> Answer:
    if isinstance(value, StepFailed):
        return Answer(error=error_to_json(value))
    return Answer(value)


def reply(tokens: int) -> dict[str, JsonValue]:
    return {"content": "ok", "usage": {"output_tokens": tokens}}


async def test_the_reservation_of_an_open_sample_counts_when_the_round_is_replayed() -> None:
    @tool(limits=Limits(max_tokens=100))
    async def outer(ctx: BranchContext) -> str:
        async def first() -> str:
            await ctx.elicit(Yes, "Well?", key="first")
            try:
                return (await ctx.sample("a", max_tokens=10)).text
            except BranchTokenError as error:
                return f"{error.used} of {error.budget}"

        refused, sent = await ctx.gather(first(), ctx.sample("b"))
        return f"{refused}, {sent.text}"

    declined: Answers = {"first": {"action": "decline"}}
    asked = await played(outer, [declined, {"outer/sample.1": reply(10)}])
    assert asked == [["first", "outer/sample.1"], ["outer/sample.1"], ["103 of 100, ok"]]


async def test_an_answered_sample_counts_until_the_replay_has_charged_it() -> None:
    @tool(limits=Limits(max_tokens=100))
    async def outer(ctx: BranchContext) -> str:
        async def first() -> str:
            await ctx.elicit(Yes, "Well?", key="first")
            try:
                return (await ctx.sample("a")).text
            except BranchTokenError as error:
                return f"{error.used} of {error.budget}"

        texts = await ctx.gather(first(), *(one_more(ctx, key) for key in ("b", "c", "d")))
        return ", ".join(texts)

    async def one_more(ctx: BranchContext, key: str) -> str:
        try:
            return (await ctx.sample(key, key=key, max_tokens=30)).text
        except StepFailed:
            return "failed"

    one = "outer/~first#1/sample.1"
    first: Answers = {"first": {"action": "decline"}}
    failed = StepFailed("d", "E", "no", from_client=True)
    asked = await played(outer, [{**first, "b": reply(60), "c": {"content": "ok"}, "d": failed}])
    assert asked[0] == ["first", "b", "c", "d"]
    assert asked[1] == [one]
    asked = await played(outer, [{**first, "b": reply(96), "c": reply(1), "d": {"bad": 1}}])
    assert asked[1] == ["132 of 100, ok, ok, failed"]


async def test_a_question_that_was_shown_is_not_refused_because_another_one_is_open() -> None:
    """A question that the user's screen shows must stay there."""

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
