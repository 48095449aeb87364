"""Law 7: a client cannot change a question, forge an answer to an unasked question, or repeat an effect.

A client has three attack points. ``tests/sagas/test_attacks.py`` forges the state that the client
returns. The tests here attack the answers next to the state and, in the handshake era, the replies
to requests. A known limit: without a store, a state can be used several times, so an *older* state
opens the call as it was then. Within one line of states, each effect happens once.
"""

from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from mcp import Client, MCPError
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.tool import Tool
from tests.mcp.harness import (
    HANDSHAKE,
    MODERN,
    Answers,
    accept,
    call_once,
    connected,
    http,
    meddling,
    serving,
)
from tests.randomised import examples

pytestmark = pytest.mark.usefixtures("quiet")
ANSWERS = Answers(lambda _: None, lambda _: None)


class Number(BaseModel):
    n: int


NUMBER = Elicitation("number", Number)


def target(effects: list[str], name: str = "target") -> Tool[dict[str, Any]]:
    """Return a tool whose value lists each answer by question, and whose effects are counted."""

    def do(what: str) -> str:
        effects.append(what)
        return what

    async def ask(ctx: BranchContext, text: str, key: str | None = None) -> Any:
        answer = await ctx.elicit(NUMBER, text, key=key)
        return answer.content.n if isinstance(answer, Accepted) else answer.action

    async def aside(ctx: BranchContext) -> list[Any]:
        first = await ask(ctx, "aside one?")
        await ctx.step(do, "aside")
        return [first, (await ctx.sample("aside two?")).text]

    @tool(name=name, elicits=[NUMBER])
    async def body(ctx: BranchContext, goal: str = "it") -> dict[str, Any]:
        await ctx.step(do, "begin")
        one, two = await ctx.gather(ask(ctx, "one?", "one"), ctx.sample("two?", key="two"))
        await ctx.step(do, "middle")
        inside = await ctx.branch(aside, inherit_messages=False)
        link = await ctx.elicit_url("three?", "https://example.org/3")
        await ctx.step(do, "end")
        return {"one": one, "two": two.text, "inside": inside, "link": link.action}

    return body


# -- the answers -------------------------------------------------------------------------------

IDS = [
    "one",
    "two",
    "one~2",
    "target/aside#1/number.1",
    "target/aside#1/number.1~2",
    "target/aside#1/sample.1",
    "target/url.1",
]
NEVER_ASKED = [
    "target",
    "target/do.1",
    "target/do.2",
    "target/aside#1",
    "target/aside#1/do.1",
    "target/number.1",
    "target/sample.1",
    "target/race.1",
    "ONE",
    "one ",
    "",
    "../one",
    "0",
]
FORMS: list[Any] = [
    *({"action": "accept", "content": {"n": n}} for n in (1, 2, 3)),
    {"action": "decline"},
    {"action": "cancel"},
    {"action": "accept", "content": {"n": "many"}},
    {"action": "accept", "content": {}},
    {"action": "accept"},
    {"action": "accept", "content": {"n": 4}, "error": {"type": "ToolError"}, "tokens": -5},
]
SAMPLES: list[Any] = [
    *(
        {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}
        for text in ("a", "b")
    ),
    {
        "role": "assistant",
        "content": {"type": "text", "text": "free"},
        "model": "m",
        "usage": {"inputTokens": 0, "outputTokens": 0},
    },
    {"role": "assistant", "content": [], "model": "m"},  # a model may return an empty reply
]
GARBAGE: list[Any] = [
    {"roots": []},
    {},
    {"value": 1, "error": None},
    {"action": "perhaps"},
    {"action": "accept", "content": {"n": {"n": 1}}},
    {"action": "accept", "content": {"n": 5, "error": {"type": "ToolError"}}},
    None,
    [],
    "accept",
    1,
]


@dataclass
class Line:
    """A state by the law: a line of rounds, with its questions and answers."""

    state: str | None = None
    asked: dict[str, Any] = field(default_factory=dict[str, Any])
    taken: dict[str, Any] = field(default_factory=dict[str, Any])
    done: list[str] = field(default_factory=list[str])
    ended: bool = False


def _fits(method: str, answer: Any) -> bool:
    """Return whether ``answer`` has the type for this kind of question; its content may still misfit."""
    wanted = "action" if method == "elicitation/create" else "role"
    return isinstance(answer, dict) and wanted in answer and answer not in GARBAGE


def _value(line: Line) -> dict[str, Any]:
    """Return the tool's expected value after the answers of ``line``."""

    def number(step_id: str) -> Any:
        for attempt in ("", "~2", "~3", "~4"):
            answer = line.taken[step_id + attempt]
            if answer["action"] != "accept":
                return answer["action"]
            content: dict[str, Any] = answer.get("content") or {}
            if isinstance(content.get("n"), int):
                return content["n"]
        raise AssertionError(line)

    def text(step_id: str) -> str:
        content = line.taken[step_id]["content"]
        return content["text"] if content else ""

    return {
        "one": number("one"),
        "two": text("two"),
        "inside": [number("target/aside#1/number.1"), text("target/aside#1/sample.1")],
        "link": line.taken["target/url.1"]["action"],
    }


class Attack:
    """Sends given answers, and checks each reply against the law."""

    def __init__(self, client: Client, effects: list[str]) -> None:
        self.client = client
        self.effects = effects
        self.lines = [Line()]
        self.questions: dict[str, Any] = {}

    async def send(self, line: Line, responses: dict[str, Any]) -> Line | None:
        """Continue ``line``; return the new line, or ``None`` if the server accepted no answer."""
        before = list(self.effects)
        try:
            reply = await call_once(
                self.client, "target", state=line.state, responses=responses or None
            )
        except MCPError as error:
            if error.error.code != types.INVALID_PARAMS:
                raise
            reply = None
        if reply is None:
            assert any(answer in GARBAGE for answer in responses.values())
            assert self.effects == before
            return None
        done = self.effects[len(before) :]
        assert not set(done) & set(line.done), "an effect happened twice"
        assert len(done) == len(set(done))
        taken = {
            step_id: answer
            for step_id, answer in responses.items()
            if step_id in line.asked and _fits(line.asked[step_id]["method"], answer)
        }
        left = {key: question for key, question in line.asked.items() if key not in taken}
        after = Line(done=[*line.done, *done], taken={**line.taken, **taken})
        if reply["resultType"] == "complete":
            assert not left
            after.ended = True
            self.check_end(after, reply)
            return after
        after.state, after.asked = reply["requestState"], reply["inputRequests"]
        assert left.items() <= after.asked.items(), "a question was changed or lost"
        assert not taken.keys() & after.asked.keys(), "an answered question was asked again"
        for step_id, question in after.asked.items():
            assert step_id.partition("~")[0] in IDS  # a suffix such as ~2 means: asked again
            if "~" not in step_id:
                assert self.questions.setdefault(step_id, question) == question
        return after

    async def continue_honestly(self, line: Line) -> Line:
        """Answer all open questions; the call then advances one round, or ends."""
        honest = {
            key: FORMS[0] if asked["method"] == "elicitation/create" else SAMPLES[0]
            for key, asked in line.asked.items()
        }
        after = await self.send(line, honest)
        assert after is not None
        assert after.ended or len(after.taken) == len(line.taken) + len(honest)
        return after

    def check_end(self, line: Line, reply: dict[str, Any]) -> None:
        if reply.get("isError"):
            # A question fails after four misfitting answers; a misfitting answer is not a forged
            # one.
            assert "did not fit after 4 attempts" in reply["content"][0]["text"]
        else:
            assert reply["structuredContent"] == _value(line)
            assert sorted(line.done) == ["aside", "begin", "end", "middle"]


def _answers_to(step_id: str) -> st.SearchStrategy[Any]:
    """Mostly answers of the right kind, which are wrong only because no question is open for them."""
    fitting = st.sampled_from(SAMPLES if "two" in step_id or "sample" in step_id else FORMS)
    return st.one_of(fitting, fitting, fitting, st.sampled_from([*FORMS, *SAMPLES]))


_TO_IDS = st.fixed_dictionaries({}, optional={key: _answers_to(key) for key in IDS})
_TO_OTHERS = st.dictionaries(st.sampled_from(NEVER_ASKED), st.sampled_from([*FORMS, *SAMPLES]))
_GARBAGE = st.dictionaries(
    st.sampled_from([*IDS, *NEVER_ASKED]), st.sampled_from(GARBAGE), min_size=1, max_size=2
)
_RESPONSES = st.one_of(
    _TO_IDS,
    _TO_IDS,
    st.builds(dict[str, Any].__or__, _TO_IDS, _TO_OTHERS),
    st.builds(dict[str, Any].__or__, _TO_IDS, _GARBAGE),
)


@examples(60, gate=25, phases=[Phase.explicit, Phase.generate, Phase.shrink])
@given(st.lists(st.tuples(st.integers(0, 9), _RESPONSES), min_size=3, max_size=10))
async def test_answers_reach_only_asked_questions_and_each_effect_of_a_line_happens_once(
    moves: list[tuple[int, dict[str, Any]]],
) -> None:
    """A move takes one of the latest states, or an older one, and sends answers of any kind."""
    effects: list[str] = []
    async with connected(serving(target(effects)), MODERN, ANSWERS) as client:
        attack = Attack(client, effects)
        for back, responses in moves:
            line = attack.lines[max(0, len(attack.lines) - 1 - (back if back > 6 else 0))]
            after = await attack.send(line, responses)
            if after is not None and after.state is not None:
                attack.lines.append(after)
        line = attack.lines[-1]
        while not line.ended:
            line = await attack.continue_honestly(line)


# -- the handshake era -------------------------------------------------------------------------


async def test_a_reply_before_its_request_is_not_used() -> None:
    forged, arrived = anyio.Event(), anyio.Event()

    def alter(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
        """Answer the next request instead of this one, the first time."""
        if isinstance(message, types.JSONRPCResponse) and not forged.is_set():
            forged.set()
            return message.model_copy(update={"id": _next(message.id)})
        return message

    async def until_it_arrived(ctx: BranchContext) -> str:
        await ctx.step(arrived.wait)
        return "no one answered"

    @tool
    async def two(ctx: BranchContext) -> list[int]:
        """Ask twice; the client answers the first question too late."""
        first = ctx.elicit(Number, "First?")
        second = ctx.elicit(Number, "Second?")
        answers = [await ctx.race(first, ctx.branch(until_it_arrived)), await second]
        return [answer.content.n for answer in answers if isinstance(answer, Accepted)]

    numbers = iter([1, 2])
    answers = Answers(lambda _: accept(n=next(numbers)))
    async with (
        http(serving(two)) as url,
        connected(meddling(url, alter), HANDSHAKE, answers) as client,
        anyio.create_task_group() as group,
    ):

        async def follow() -> None:
            await forged.wait()
            await client.list_tools()  # messages arrive in order, so the reply has arrived
            arrived.set()

        group.start_soon(follow)
        result = await client.call_tool("two")
        assert forged.is_set()
        assert result.structured_content == {"result": [2]}


def _next(request_id: int | str) -> int | str:
    return request_id + 1 if isinstance(request_id, int) else str(int(request_id) + 1)
