"""A question in an agent of another project: by our tool, and by the framework's own way to pause.

One turn is a whole call: the agent's scripted model calls a tool, the tool asks, the run ends, another run
continues with the answer, and the model reads the result. ``run_round`` alone has no agent: the benchmark
starts the call, and continues it with its answer. States are sealed; the store is in memory.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.adapters import langchain, pydantic_ai
from anabranch.rounds import Asked, Returned, Rounds
from bench.measure import Row, time_in_turns

NAME = "pauses"
TURNS = 30
TIMES = 10
"""Calls in a turn."""
KEY = "a key of the benchmarks, which is long enough"
NAMES: Iterator[int] = count()

Turn = Callable[[], Awaitable[object]]


class Stay(BaseModel):
    """The answer to the question."""

    nights: int


@tool
async def book(ctx: BranchContext, city: str) -> str:
    """Book a hotel."""
    answer = await ctx.elicit(Stay, f"How long in {city}?")
    return f"{answer.content.nights} nights" if isinstance(answer, Accepted) else "not booked"


ANSWERS: dict[str, Any] = {"book/elicit.1": {"action": "accept", "content": {"nights": 2}}}
CITY = {"city": "Rome"}


def alone(rounds: Rounds) -> Turn:
    async def turn() -> None:
        for _ in range(TIMES):
            asked = await rounds.run(book, CITY)
            assert isinstance(asked, Asked)
            ended = await rounds.run(book, CITY, state=asked.state, answers=ANSWERS)
            assert ended == Returned("2 nights")

    return turn


def in_pydantic_ai(rounds: Rounds | None) -> Turn:
    """Return a turn of Pydantic AI; without ``rounds``, with a tool that pauses in the framework's way."""
    ai: Any = importlib.import_module("pydantic_ai")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    function: Any = importlib.import_module("pydantic_ai.models.function")

    def model(history: list[Any], _: object) -> Any:  # noqa: ANN401 - the framework's
        if len(history) > 1:
            return messages.ModelResponse([messages.TextPart("done")])
        return messages.ModelResponse([messages.ToolCallPart("book", CITY, f"call-{next(NAMES)}")])

    async def own(ctx: Any, city: str) -> str:  # noqa: ANN401 - the framework's
        if not ctx.tool_call_approved:
            raise ai.ApprovalRequired(metadata={"question": f"How long in {city}?"})
        return f"{ctx.tool_call_metadata['nights']} nights"

    schema = book.input_schema
    by_hand = ai.Tool.from_schema(own, "book", book.description, schema, takes_ctx=True)
    made = by_hand if rounds is None else pydantic_ai.as_tool(book, rounds)
    agent = ai.Agent(
        function.FunctionModel(model), tools=[made], output_type=[str, ai.DeferredToolRequests]
    )

    async def turn() -> None:
        for _ in range(TIMES):
            paused = await agent.run("Go.")
            (call,) = (each.tool_call_id for each in paused.output.approvals)
            given = paused.output.build_results(approve_all=True, metadata={call: {"nights": 2}})
            if rounds is not None:
                given = pydantic_ai.results(paused.output, {call: ANSWERS})
            history = paused.all_messages()
            ended = await agent.run(message_history=history, deferred_tool_results=given)
            assert ended.output == "done"

    return turn


def in_langchain(rounds: Rounds | None) -> Turn:
    """Return a turn of LangChain; without ``rounds``, with a tool that pauses in the framework's way."""
    agents: Any = importlib.import_module("langchain.agents")
    core: Any = importlib.import_module("langchain_core.messages")
    models: Any = importlib.import_module("langchain_core.language_models")
    outputs: Any = importlib.import_module("langchain_core.outputs")
    tools: Any = importlib.import_module("langchain_core.tools")
    memory: Any = importlib.import_module("langgraph.checkpoint.memory")
    types: Any = importlib.import_module("langgraph.types")
    base: Any = models.BaseChatModel

    class Scripted(base):  # type: ignore[misc]
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, _: object, **__: object) -> Scripted:
            return self

        def _generate(self, messages: list[Any], *_: object, **__: object) -> Any:  # noqa: ANN401
            reply = core.AIMessage("done")
            if not isinstance(messages[-1], core.ToolMessage):
                call = {"name": "book", "args": CITY, "id": f"call-{next(NAMES)}"}
                reply = core.AIMessage("", tool_calls=[call])
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=reply)])

    async def own(city: str) -> str:
        return f"{types.interrupt(f'How long in {city}?')['nights']} nights"

    by_hand = tools.StructuredTool(
        name="book", description=book.description, args_schema=book.input_schema, coroutine=own
    )
    made = by_hand if rounds is None else langchain.as_tool(book, rounds)
    agent = agents.create_agent(Scripted(), [made], checkpointer=memory.InMemorySaver())
    answer = {"nights": 2} if rounds is None else ANSWERS

    async def turn() -> None:
        for _ in range(TIMES):
            config = {"configurable": {"thread_id": str(next(NAMES))}}
            paused = await agent.ainvoke({"messages": ["Go."]}, config)
            (interrupt,) = paused["__interrupt__"]
            ended = await agent.ainvoke(types.Command(resume={interrupt.id: answer}), config)
            assert ended["messages"][-2].content == "2 nights"

    return turn


async def rows() -> list[Row]:
    rounds = Rounds(keys=[KEY])
    async with Rounds(keys=[KEY], store="memory:") as stored:
        contenders = {
            "run_round": alone(rounds),
            "run_round, stored": alone(stored),
            "Pydantic AI: its own pause": in_pydantic_ai(None),
            "Pydantic AI: our tool": in_pydantic_ai(rounds),
            "LangChain: its own pause": in_langchain(None),
            "LangChain: our tool": in_langchain(rounds),
        }
        times = await time_in_turns(contenders, TURNS)
    milli = 1e3 / TIMES
    found = [
        Row(NAME, f"a question: {name}", times.best(name) * milli, "ms") for name in contenders
    ]
    for maker in ("Pydantic AI", "LangChain"):
        ratio = times.ratio(f"{maker}: our tool", f"{maker}: its own pause")
        found.append(Row(NAME, f"{maker}: our tool / its own pause", ratio))
    return found


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
