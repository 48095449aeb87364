"""The folded task of ``tests/folding/test_trace.py``, as pydantic-ai and LangChain shorten contexts.

The model is scripted, so nothing leaves the process. All contenders read the same records by the same tool,
and differ in the context alone. Ours folds each subtask away. pydantic-ai has a history processor with
which the model summarises old messages, as its documentation shows. LangChain's agents, which run on
LangGraph, have ``SummarizationMiddleware``. Both begin to summarise at the budget of one subtask, and keep
the last messages. For all contenders, four characters count as a token, and requests for summaries count.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from typing import Any

from bench.measure import Row
from tests.folding.test_trace import RECORD, TASK, Trace, flat, folded, sent

__all__ = ["NAME", "measure_peers"]

NAME = "folding"
STEPS, SUMMARISE_AT, KEEP = 200, 20_000, 20
SUMMARY = "The records until here are as they should be."


def tokens_of(text: str) -> int:
    return len(text) // 4


class Sent:
    """The tokens of all requests of one contender."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.tokens: list[int] = [tokens_of(text) for text in texts]

    def rows(self, who: str) -> list[Row]:
        return [
            Row(
                NAME,
                f"largest request of a task in ten subtasks, {who}",
                max(self.tokens),
                "tokens",
            ),
            Row(NAME, f"all requests of that task, {who}", sum(self.tokens), "tokens"),
        ]


async def ours() -> list[Row]:
    traces = {"anabranch, flat": flat(), "anabranch, folded": folded()}
    rows: list[Row] = []
    for who, replies in traces.items():
        trace = await Trace(replies).run()
        rows += Sent([sent(request) for request in trace.model.requests]).rows(who)
    return rows


async def pydantic_ai() -> list[Row]:
    """Return a history processor that summarises, with tool calls and their returns in pairs."""
    ai: Any = importlib.import_module("pydantic_ai")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    capabilities: Any = importlib.import_module("pydantic_ai.capabilities")
    function: Any = importlib.import_module("pydantic_ai.models.function")
    seen, steps = Sent(), iter(range(STEPS))

    def texts(history: Sequence[Any]) -> str:
        return str(messages.ModelMessagesTypeAdapter.dump_json(list(history)), "utf-8")

    def reply(history: Sequence[Any], info: object) -> object:
        del info
        seen.tokens.append(tokens_of(texts(history)))
        number = next(steps, None)
        part = (
            messages.TextPart("All is as it should be.")
            if number is None
            else messages.ToolCallPart("read", {"number": number}, f"read_{number}")
        )
        return messages.ModelResponse([part])

    def summary(history: Sequence[Any], info: object) -> object:
        del info
        seen.tokens.append(tokens_of(texts(history)))
        return messages.ModelResponse([messages.TextPart(SUMMARY)])

    summariser = ai.Agent(function.FunctionModel(summary), instructions="Summarise this.")

    async def summarise_old(history: list[Any]) -> list[Any]:
        if tokens_of(texts(history)) < SUMMARISE_AT or len(history) <= KEEP:
            return history
        done = await summariser.run(message_history=history[:-KEEP])
        asked = messages.ModelRequest([messages.UserPromptPart(TASK)])
        return [asked, *done.new_messages()[-1:], *history[-KEEP:]]

    def read(number: int) -> str:
        """Read a record."""
        return f"record {number}: {RECORD}"

    agent = ai.Agent(
        function.FunctionModel(reply),
        tools=[read],
        capabilities=[capabilities.ProcessHistory(summarise_old)],
    )
    limits = importlib.import_module("pydantic_ai.usage").UsageLimits(request_limit=None)
    await agent.run(TASK, usage_limits=limits)
    return seen.rows("pydantic-ai")


async def langchain() -> list[Row]:
    """Return the middleware that LangChain's documentation shows."""
    os.environ["LANGSMITH_TRACING"] = "false"
    agents: Any = importlib.import_module("langchain.agents")
    middleware: Any = importlib.import_module("langchain.agents.middleware")
    core: Any = importlib.import_module("langchain_core.messages")
    models: Any = importlib.import_module("langchain_core.language_models.chat_models")
    outputs: Any = importlib.import_module("langchain_core.outputs")
    seen, steps = Sent(), iter(range(STEPS))

    class Scripted(models.BaseChatModel):  # type: ignore[misc]
        summarises: bool = False

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: object, **more: object) -> object:
            del tools, more
            return self

        def _generate(self, messages: Sequence[Any], *given: object, **more: object) -> object:
            del given, more
            said = json.dumps([message.model_dump(mode="json") for message in messages])
            seen.tokens.append(tokens_of(said))
            number = None if self.summarises else next(steps, None)
            message = core.AIMessage(SUMMARY)
            if number is not None:
                call = {"name": "read", "args": {"number": number}, "id": f"read_{number}"}
                message = core.AIMessage("", tool_calls=[call])
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=message)])

    def read(number: int) -> str:
        """Read a record."""
        return f"record {number}: {RECORD}"

    def counted(given: Sequence[Any]) -> int:
        return sum(tokens_of(str(each.content)) for each in given)

    summarising = middleware.SummarizationMiddleware(
        model=Scripted(summarises=True),
        trigger=("tokens", SUMMARISE_AT),
        keep=("messages", KEEP),
        token_counter=counted,
    )
    agent = agents.create_agent(Scripted(), tools=[read], middleware=[summarising])
    given = {"messages": [{"role": "user", "content": TASK}]}
    await agent.ainvoke(given, {"recursion_limit": 10 * STEPS})
    return seen.rows("LangChain on LangGraph")


async def measure_peers() -> list[Row]:
    """Run the task in each framework."""
    return [*await ours(), *await pydantic_ai(), *await langchain()]
