"""Adapter to Microsoft's Agent Framework: a tool's question becomes a request for user input.

    agent = Agent(client, tools=[as_tool(book_hotel, rounds)])
    result = await agent.run("Book a hotel in Rome", session=session)
    requests = result.user_input_requests
    asked = questions(requests)                      # {call id: {"questions": […], "until": …}}
    requests = await answer(requests, tools, {call_id: {question_id: answer}})
    if (message := results(requests)) is not None:   # every call has ended
        result = await agent.run(message, session=session)

The requests hold the sealed states: store ``request.to_dict()`` with the session. ``answer`` runs
the later rounds, and ``results`` returns the values of the calls. To ask, the tool raises an
exception, which the framework logs as a failure of the function. The sampler of ``rounds`` answers
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anabranch.adapters._paused_call import (
    AdaptedTool,
    Answers,
    StoredCall,
    next_rounds,
    questions_of,
    require_both,
)
from anabranch.errors import find_framework
from anabranch.rounds import Rounds
from anabranch.tool import Tool

__all__ = ["answer", "as_tool", "questions", "results"]

OURS = "anabranch"
"""The key of the stored call in a request."""


def as_tool(
    tool: Tool[Any], rounds: Rounds, *, principal: Callable[[Any], str] | None = None
) -> Any:  # noqa: ANN401 - the framework's
    """Return ``tool`` as a ``FunctionTool``.

    ``principal`` is a function that returns the caller from the framework's context.

    Raises:
        MissingExtraError: if the framework is not installed, or is too old.
    """
    require_both(tool, rounds)
    framework = _framework()
    adapted = AdaptedTool(tool, rounds)

    async def run(anabranch_context: Any, **arguments: Any) -> str:  # noqa: ANN401 - its context
        caller = principal(anabranch_context) if principal else ""
        ended = await adapted.begin(arguments, caller, _name_of(anabranch_context))
        if "text" in ended:
            return str(ended["text"])
        request = framework.Content(
            "function_approval_request",
            user_input_request=True,
            additional_properties={OURS: ended},
        )
        raise framework.UserInputRequiredException([request])

    # The annotation tells the framework that the model does not give this parameter.
    run.__annotations__["anabranch_context"] = framework.FunctionInvocationContext
    made = framework.FunctionTool(
        name=tool.name, description=tool.description, func=run, input_model=tool.input_schema
    )
    made.anabranch = adapted
    return made


def questions(requests: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return the open questions of the agent's anabranch tools, by call id.

    The value of each call is JSON: ``tool``, ``questions``, ``until`` (when a sleep ends), and
    ``problem`` (why the last answers were refused).
    """
    return questions_of({request.call_id: call for request, call in _ours(requests)})


async def answer(
    requests: Iterable[Any],
    tools: Iterable[Any],
    answers: Mapping[str, Answers],
    *,
    principal: str = "",
) -> list[Any]:
    """Run one round of each open call with its ``answers``, by call id and question id.

    Args:
        requests: the requests that the agent's last run, or the last ``answer``, returned; requests
            of other tools are ignored.
        tools: the agent's tools.
        answers: answers to some or all questions. A sleeping tool needs no answers: its call
            continues when its time has come.
        principal: the user who answers, as the ``principal`` function of ``as_tool`` returned it.

    Returns:
        the updated requests, from which :func:`questions` reads the open questions.

    Raises:
        Exception: if a call cannot continue now; it stays open. ``requests`` have the results of
            the other calls.
    """
    ours = {request.call_id: (request, call) for request, call in _ours(requests)}
    calls = {call_id: call for call_id, (_, call) in ours.items()}
    async for call_id, call in next_rounds(tools, calls, answers, principal):
        ours[call_id][0].additional_properties[OURS] = call
    return [request for request, _ in ours.values()]


def results(requests: Iterable[Any]) -> Any:  # noqa: ANN401 - Message, or None
    """Return the message to pass to the agent's next run, or ``None`` while a call is open."""
    framework, ours = _framework(), _ours(requests)
    if not ours or not all("text" in call for _, call in ours):
        return None
    contents = [
        framework.Content.from_function_result(request.call_id, result=call["text"])
        for request, call in ours
    ]
    return framework.Message("tool", contents)


def _name_of(context: Any) -> str:  # noqa: ANN401 - FunctionInvocationContext
    """Return a call's name; "" without a session, or if no middleware has set the call's id."""
    call_id = context.metadata.get("call_id")
    return f"{context.session.session_id}/{call_id}" if context.session and call_id else ""


def _ours(requests: Iterable[Any]) -> list[tuple[Any, StoredCall]]:
    return [
        (request, request.additional_properties[OURS])
        for request in requests
        if OURS in (request.additional_properties or {})
    ]


def _framework() -> Any:  # noqa: ANN401 - a module
    return find_framework("agent_framework", "agent-framework-core", "1.23", __name__)
