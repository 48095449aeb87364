"""Adapter to Google's ADK: a tool that asks becomes a long-running tool call.

    agent = Agent(name="travel", model=…, tools=[as_tool(book_hotel, rounds)])
    async for event in runner.run_async(user_id=…, session_id=…, new_message=…): …
    session = await service.get_session(…)
    asked = questions(session)                       # {call id: {"questions": […], "until": …}}
    message = await answer(service, session, agent.tools, {call_id: {question_id: answer}})
    if message is not None:                          # every call has ended
        async for event in runner.run_async(user_id=…, session_id=…, new_message=message): …

The session's state holds the sealed states of the calls. ``answer`` runs the later rounds, and
appends an event that stores the new states. The message has the responses of the calls. The
principal is the session's user. The sampler of ``rounds`` answers samples.
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

__all__ = ["answer", "as_tool", "questions"]

STORED = "anabranch:"
"""The prefix of our names in a session's state; the id of a call follows."""

WAITING = {"status": "The user is asked, and has not answered yet."}


def user_of(context: Any) -> str:  # noqa: ANN401 - a context, or a session
    """Return the user of a session, which is the principal by default."""
    return str(context.user_id)


def as_tool(tool: Tool[Any], rounds: Rounds, *, principal: Callable[[Any], str] = user_of) -> Any:  # noqa: ANN401 - the framework's
    """Return ``tool`` as a ``BaseTool`` of ADK.

    ``principal`` is a function that returns the caller from ADK's context.

    Raises:
        MissingExtraError: if ADK is not installed, or is too old.
    """
    require_both(tool, rounds)
    base = find_framework("google.adk.tools.base_tool", "google-adk", "2.13", __name__).BaseTool
    genai = find_framework("google.genai.types", "google-genai", "2.30", __name__)
    adapted = AdaptedTool(tool, rounds)

    class AnabranchTool(base):  # type: ignore[misc, valid-type]
        anabranch = adapted

        def _get_declaration(self) -> Any:  # noqa: ANN401 - the framework's
            return genai.FunctionDeclaration(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=tool.input_schema,
            )

        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:  # noqa: ANN401
            call_id, caller = tool_context.function_call_id, principal(tool_context)
            name = f"{tool_context.session.id}/{call_id}"
            ended = await adapted.begin(args, caller, name)
            if "text" in ended:
                return {"result": ended["text"]}
            tool_context.state[f"{STORED}{call_id}"] = ended
            tool_context.actions.skip_summarization = True
            return WAITING

    return AnabranchTool(name=tool.name, description=tool.description, is_long_running=True)


def questions(session: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - Session
    """Return the open questions of the agent's anabranch tools in a session, by call id.

    The value of each call is JSON: ``tool``, ``questions``, ``until`` (when a sleep ends), and
    ``problem`` (why the last answers were refused).
    """
    return questions_of(_stored_calls(session))


async def answer(
    service: Any,  # noqa: ANN401 - BaseSessionService
    session: Any,  # noqa: ANN401 - Session
    tools: Iterable[Any],
    answers: Mapping[str, Answers],
    *,
    principal: Callable[[Any], str] = user_of,
) -> Any:  # noqa: ANN401 - Content, or None
    """Run one round of each open call with its ``answers``, by call id and question id.

    Args:
        service: ADK's session service, which stores the session.
        session: the session, read from the service with all its events; it is updated.
        tools: the agent's tools.
        answers: answers to some or all questions. A sleeping tool needs no answers: its call
            continues when its time has come.
        principal: returns the caller from the session.

    Returns:
        the message to pass to the agent's next run, or ``None`` while a call is open. The function
            returns the message again until the session contains it.

    Raises:
        Exception: if a call cannot continue now; it stays open, and the results of the other calls
            are stored.
    """
    events = find_framework("google.adk.events", "google-adk", "2.13", __name__)
    genai = find_framework("google.genai.types", "google-genai", "2.30", __name__)

    async def store(changed: Mapping[str, StoredCall | None]) -> None:
        delta = {f"{STORED}{call_id}": call for call_id, call in changed.items()}
        actions = events.EventActions(state_delta=delta)
        await service.append_event(session, events.Event(author="user", actions=actions))

    stored, read = _stored_calls(session), _read_calls(session)
    if read:
        await store(dict.fromkeys(read))
    calls = {call_id: call for call_id, call in stored.items() if call_id not in read}
    async for call_id, call in next_rounds(tools, {**calls}, answers, principal(session)):
        if call != calls[call_id]:
            await store({call_id: call})
        calls[call_id] = call
    if not calls or not all("text" in call for call in calls.values()):
        return None
    responses = [
        genai.FunctionResponse(id=call_id, name=call["tool"], response={"result": call["text"]})
        for call_id, call in calls.items()
    ]
    parts = [genai.Part(function_response=response) for response in responses]
    return genai.Content(role="user", parts=parts)


def _stored_calls(session: Any) -> dict[str, StoredCall]:  # noqa: ANN401 - Session
    return {
        name.removeprefix(STORED): call
        for name, call in sorted(session.state.items())
        if name.startswith(STORED) and call
    }


def _read_calls(session: Any) -> list[str]:  # noqa: ANN401 - Session
    """Return the ids of the stored calls whose values the session's events already have."""
    read: set[str] = set()
    for event in session.events:
        read -= {call.id for call in event.get_function_calls()}  # some models reuse ids
        responses = event.get_function_responses()
        read |= {each.id for each in responses if each.response != WAITING}
    return [
        name for name, call in _stored_calls(session).items() if "text" in call and name in read
    ]
