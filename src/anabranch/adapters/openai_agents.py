"""Adapter to the OpenAI Agents SDK: a tool's question interrupts the run like an approval.

    agent = Agent(name="travel", tools=[as_tool(book_hotel, rounds)])
    result = await Runner.run(agent, "Book a hotel in Rome", context={})
    asked = questions(result.to_state())                         # {call id: {"questions": […], …}}
    snapshot = result.to_state().to_json()                       # later, in another process:
    state = await RunState.from_json(agent, snapshot)
    if not await answer(state, agent.tools, {call_id: {question_id: answer}}):
        result = await Runner.run(agent, state)

The run's context must be a dict. Its key ``anabranch`` holds the sealed states, and the values of
ended calls. The first round runs when the SDK asks whether a call needs approval. ``answer`` runs
the other rounds, and approves a call after its last round. Tools have no access to the agent's
model: the sampler of ``rounds`` answers samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from anabranch._text import read_json
from anabranch.adapters._paused_call import (
    AdaptedTool,
    Answers,
    next_rounds,
    questions_of,
    require_both,
)
from anabranch.errors import find_framework
from anabranch.rounds import Rounds
from anabranch.tool import Tool

__all__ = ["answer", "as_tool", "questions"]


def no_one(_: object) -> str:
    """Return "", the principal of a call whose caller is unknown."""
    return ""


WAITS = "The user has not answered the questions of this call."


@dataclass(frozen=True)
class _Beginnings:
    """Runs the first round of a call when the SDK asks whether the call needs approval."""

    adapted: AdaptedTool
    principal: Callable[[Any], str]
    failures: dict[str, Exception] = field(default_factory=dict[str, Exception])
    """Errors to raise when the SDK runs the tool; raised earlier, they would request an approval."""

    async def needs_answers(self, wrapper: Any, arguments: Any, call_id: str) -> bool:  # noqa: ANN401
        ours = _ours(wrapper)
        name, calls = f"{ours['run']}/{call_id}", ours["calls"]
        if name in self.failures:
            return False
        if call_id not in calls:
            try:
                calls[call_id] = await self.adapted.begin(arguments, self.principal(wrapper), name)
            except Exception as error:  # noqa: BLE001 - as above
                self.failures[name] = error
                return False
        return "text" not in calls[call_id]

    async def read(self, context: Any, arguments: str) -> str:  # noqa: ANN401 - ToolContext
        call_id = context.tool_call_id
        if await self.needs_answers(context, read_json(arguments or "{}"), call_id):
            return WAITS
        ours = _ours(context)
        if (error := self.failures.pop(f"{ours['run']}/{call_id}", None)) is not None:
            raise error
        return str(ours["calls"][call_id]["text"])


def as_tool(tool: Tool[Any], rounds: Rounds, *, principal: Callable[[Any], str] = no_one) -> Any:  # noqa: ANN401 - the framework's
    """Return ``tool`` as a ``FunctionTool``.

    ``principal`` is a function that returns the caller from the run's context.

    Raises:
        MissingExtraError: if the SDK is not installed, or is too old.
    """
    require_both(tool, rounds)
    agents = find_framework("agents", "openai-agents", "0.24", __name__)
    adapted = AdaptedTool(tool, rounds)
    beginnings = _Beginnings(adapted, principal)
    made = agents.FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.input_schema,
        on_invoke_tool=beginnings.read,
        needs_approval=beginnings.needs_answers,
        strict_json_schema=False,
    )
    made.anabranch = adapted
    return made


def questions(state: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - RunState
    """Return the open questions of the agent's anabranch tools, by call id.

    The value of each call is JSON: ``tool``, ``questions``, ``until`` (when a sleep ends), and
    ``problem`` (why the last answers were refused).
    """
    calls = _ours(state._context)["calls"]  # noqa: SLF001 - a state has no public context
    waiting = [item.raw_item.call_id for item in state.get_interruptions()]
    return questions_of({call_id: calls[call_id] for call_id in waiting if call_id in calls})


async def answer(
    state: Any,  # noqa: ANN401 - RunState
    tools: Iterable[Any],
    answers: Mapping[str, Answers],
    *,
    principal: Callable[[Any], str] = no_one,
) -> dict[str, dict[str, Any]]:
    """Run one round of each open call with its ``answers``, by call id and question id.

    Args:
        state: the run's state, in which this function approves ended calls.
        tools: the agent's tools.
        answers: answers to some or all questions. A sleeping tool needs no answers: its call
            continues when its time has come.
        principal: returns the caller from the run's context.

    Returns:
        the questions that are still open, like :func:`questions`; if empty, continue the run.

    Raises:
        Exception: if a call cannot continue now; it stays open. ``state`` has the results of the
            other calls.
    """
    wrapper = state._context  # noqa: SLF001 - as above
    calls, waiting = _ours(wrapper)["calls"], state.get_interruptions()
    items = {each.raw_item.call_id: each for each in waiting if each.raw_item.call_id in calls}
    given = {call_id: calls[call_id] for call_id in items}
    async for call_id, call in next_rounds(tools, given, answers, principal(wrapper)):
        calls[call_id] = call
        if "text" in call:
            state.approve(items[call_id])
    return questions(state)


def _ours(wrapper: Any) -> dict[str, Any]:  # noqa: ANN401 - RunContextWrapper
    """Return this library's data in the run's context: the calls, and a unique name of the run."""
    context = wrapper.context
    if not isinstance(context, dict):
        raise TypeError(
            "A run with tools of anabranch needs a dict as its context. Pass context={}."
        )
    ours: dict[str, Any] = cast("dict[str, Any]", context).setdefault(
        "anabranch", {"run": uuid4().hex, "calls": {}}
    )
    return ours
