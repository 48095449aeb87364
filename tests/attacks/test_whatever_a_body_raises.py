"""Any exception of a tool, at any place, ends its call with an error, and the server continues.

Each place in ``raising.py`` is tried with each exception in this process, and over each edge in the
long run. The gate tries some of the places over the edges. The last call of each test shows that
the process still runs. A failing test may end pytest as well.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Generator
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError

from anabranch import Accepted, Capabilities, run_tool
from anabranch.agents import Agent, result_at
from anabranch.messages import ElicitReply, ElicitRequest, SampleReply, SampleRequest
from anabranch.testing import MockClient, MockModel, calls
from tests.agents.memory import MemoryTrees
from tests.attacks.raising import PLACES, RAISED, arguments, raises, returns, takes
from tests.engine.impatience import never_retry_undos, shorten_grace
from tests.mcp.harness import ERAS, Answers, connected, serving
from tests.mcp.harness import text_of as text_in
from tests.sagas.harness import accepted, call_saga, resume_saga

pytestmark = pytest.mark.usefixtures("quiet", "impatient", "unretrieved")

FIRST = {
    "body",
    "after a question",
    "thread of an undo",
    "cleanup after suspension",
    "validator of an answer",
}
"""The places whose handling differs between edges: the exception leaves the body, or the edge's work."""
AT_AN_EDGE = pytest.mark.parametrize(
    "where",
    [pytest.param(each, marks=() if each in FIRST else pytest.mark.long) for each in PLACES],
)


@pytest.fixture(scope="module")
def impatient() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        never_retry_undos(patch)
        shorten_grace(patch)
        yield


@pytest.fixture
async def unretrieved() -> AsyncIterator[None]:
    """Ignore the loop's reports of exceptions that no task awaits; they are no failures here."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, _context: None)
    yield
    loop.set_exception_handler(before)


def answer(request: object) -> Any:
    return Accepted({"value": 13} if isinstance(request, ElicitRequest) else None)


@pytest.mark.parametrize("replay", [True, False], ids=["replayed", "live"])
@pytest.mark.parametrize("where", PLACES)
async def test_an_exception_of_a_body_reaches_a_direct_caller(where: str, replay: bool) -> None:
    for what in RAISED:
        client = MockClient(elicits=answer)
        with pytest.raises(Exception):  # noqa: B017, PT011 - any, but no other BaseException
            await run_tool(raises, arguments(what, where), client, replay=replay)
    client = MockClient()
    assert await run_tool(raises, arguments("", ""), client) == "still there"


def accept(_: object) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"value": 13})


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("era", ERAS)
@AT_AN_EDGE
async def test_a_result_over_mcp_reports_an_exception(
    where: str, era: str, store: str | None
) -> None:
    async with connected(serving(raises, store=store), era, Answers(accept)) as client:
        for what in RAISED:
            result = await client.call_tool("raises", arguments(what, where))
            assert result.is_error, what
            assert text_in(result).startswith("Error executing tool raises"), what
        assert not (await client.call_tool("raises", arguments("", ""))).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_and_values_that_raise_become_error_results(era: str) -> None:
    async with connected(serving(returns, takes, raises), era) as client:
        for what in RAISED:
            assert (await client.call_tool("returns", {"what": what})).is_error, what
            assert (await client.call_tool("takes", {"given": {"what": what}})).is_error, what
            for name, given in (("returns", {"what": what}), ("takes", {"given": {"what": what}})):
                try:
                    saga = await call_saga(client, name, given)
                except MCPError:
                    continue
                assert saga["isError"], what
        assert not (await client.call_tool("raises", arguments("", ""))).is_error


@AT_AN_EDGE
async def test_a_saga_ends_with_an_error(where: str) -> None:
    async with connected(serving(raises), ERAS[1], Answers(accept)) as client:
        for what in RAISED:
            saga = await call_saga(client, "raises", arguments(what, where))
            steps: list[dict[str, Any]] = []
            while "sagaToken" in saga:
                steps += [accepted(step["stepId"], value=13) for step in saga["steps"]]
                saga = await resume_saga(client, saga["sagaToken"], *steps)
            assert saga["isError"], what
        saga = await call_saga(client, "raises", arguments("", ""))
        assert not saga.get("isError")


@AT_AN_EDGE
async def test_an_agents_turn_continues_with_the_error(where: str) -> None:
    for what in RAISED:

        def decide(request: SampleRequest, what: str = what) -> SampleReply:
            results = [each for each in request.messages[-1].content if each.type == "tool_result"]
            return (
                calls(text="Done.") if results else calls(("use", "raises", arguments(what, where)))
            )

        trees = MemoryTrees()
        agent = Agent(
            trees, MockModel(decide), tools=[raises], capabilities=Capabilities(elicitation=True)
        )
        end = await agent.say((await agent.begin()).id, "Go")
        while questions := await agent.open_questions(end):
            for question in questions:
                reply = ElicitReply(action="accept", content={"value": 13})
                end = await agent.answer(question.id, reply)
        result = result_at(await trees.path(end.id), "use")
        assert result is not None, what
        assert result.is_error, what


SCRIPT = """
import asyncio, signal, sys, threading
from anabranch import BranchContext, run_tool, tool

def spin():
    threading.Thread(target=lambda: signal.pthread_kill(threading.main_thread().ident, SIGNAL)).start()
    while True:
        pass

async def busy():
    await asyncio.sleep(0)
    {how}

@tool
async def leaves(ctx: BranchContext) -> None:
    await {where}

SIGNAL = signal.SIGINT
async def main():
    {handler}
    try:
        await run_tool(leaves)
    except Exception as error:
        print("an error:", error)

asyncio.run(main())
print("the process goes on")
"""

SIGNALS = {
    "Ctrl-C, where nothing handles it": "signal.signal(SIGNAL, signal.default_int_handler)",
    "the second Ctrl-C of asyncio.run": "signal.raise_signal(SIGNAL)",
    "a handler that exits": "signal.signal(SIGNAL, lambda *_: sys.exit(130))",
}


WHERE = ("busy()", "ctx.gather(busy())", "ctx.step(busy)")
HOW = ("spin()", "signal.raise_signal(SIGNAL)")
IN_THE_GATE = [("spin()", WHERE[0]), (HOW[1], WHERE[1]), ("spin()", WHERE[2])]


@pytest.mark.parametrize(
    ("handler", "how", "where"),
    [
        pytest.param(
            SIGNALS[name],
            how,
            where,
            id=f"{name}-{how}-{where}",
            marks=() if (how, where) == first else pytest.mark.long,
        )
        for name, first in zip(SIGNALS, IN_THE_GATE, strict=True)
        for how in HOW
        for where in WHERE
    ],
)
async def test_an_exception_of_a_signal_handler_still_ends_the_process(
    where: str, how: str, handler: str
) -> None:
    script = SCRIPT.format(where=where, how=how, handler=handler)
    ended = await anyio.run_process([sys.executable, "-c", script], check=False)
    assert ended.returncode not in {0, 1}, ended.stderr.decode()
    assert b"continues" not in ended.stdout
