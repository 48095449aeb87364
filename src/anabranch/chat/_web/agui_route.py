"""``POST /agui``: starts a run of AG-UI 1.0 with a new message, or with answers to the last run.

The conversation is the server's tree. Of the messages that a client sends, only those at the end
are new: the user's last message, and results.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, cast

from ag_ui.core import ResumeEntry, RunAgentInput
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from anabranch._asking import describe
from anabranch.agents import FrontEnd, FrontEndResult
from anabranch.chat._web.access import caller_of, full
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_stream import EventStream
from anabranch.chat._web.front_end_input import is_answer, read_front_end, results_in
from anabranch.chat._web.message_input import RunInput, given_message
from anabranch.chat._web.requests import ThreadBody, check_name, read_body
from anabranch.chat._web.run_input import HEAD, Message, Place
from anabranch.chat._web.turn_work import TurnWork
from anabranch.messages import ElicitReply
from anabranch.tree import Thread

TITLE = 60


def agui_route(conversations: Conversations) -> Route:
    async def run(request: Request) -> Response:
        wanted = await read_body(request, RunInput)
        check_name("A runId", wanted.run_id)  # it names wakes, leases and nodes
        caller = caller_of(request)
        caller.check_run()
        front_end = read_front_end(wanted, conversations.agent)
        if not is_answer(wanted):
            await _check_backlog(conversations, wanted, caller.principal)
        # Such a client already follows the thread.
        follows = request.headers.get("accept") == "application/json"
        with ExitStack() if follows else caller.open_stream() as place:
            said, files = None, dict[str, bytes]()
            if not is_answer(wanted):
                said, files = given_message(wanted, _place(wanted))
            conversation = await _conversation(conversations, wanted, said, caller.principal)
            results = await results_in(wanted, conversations.agent, conversation.thread_id)
            if said is None:
                after = await _resume(conversation, wanted, results, front_end)
            else:
                if files:
                    store = conversations.agent.store
                    await store.add_files(conversation.thread_id, files)
                after = await conversation.say(
                    said.text,
                    wanted.run_id,
                    at=said.at,
                    files=said.files,
                    message_id=said.id,
                    front_end=front_end,
                    results=results,
                    may_wait=follows,
                )
            if follows:
                return JSONResponse({"runId": wanted.run_id}, 202)
            running, stopping = conversation.is_running, conversations.stopping
            held = place.pop_all()
            return EventStream(conversation.log, after, running, stopping, one_run=True, place=held)

    return Route("/agui", run, methods=["POST"])


async def _check_backlog(
    conversations: Conversations, wanted: RunAgentInput, principal: str | None
) -> None:
    """Refuse a new run before the server stores anything of the run."""
    if seconds := await conversations.backlog.add():
        found = await conversations.find(wanted.thread_id, principal)
        if found is None or await found.log.begun(wanted.run_id) is None:
            raise full(seconds)


async def _conversation(
    conversations: Conversations,
    wanted: RunAgentInput,
    message: Message | None,
    principal: str | None,
) -> Conversation:
    found = await conversations.find(wanted.thread_id, principal)
    if found is None and message is not None:
        name = _new_id(wanted.thread_id)
        await TurnWork(conversations.agent, "").check(message)  # no node belongs to a new thread
        now = conversations.agent.dependencies.clock.now()
        title = message.text or ", ".join(block.name for block in message.files)
        new = Thread(name, now, title=title[:TITLE], owner=principal)
        found = await conversations.begin(new) or await conversations.find(name, principal)
    if found is None:
        raise HTTPException(404, f"Unknown thread {wanted.thread_id!r}.")
    return found


def _new_id(thread_id: str) -> str:
    try:
        return ThreadBody(id=thread_id).id or ""
    except ValidationError as problem:
        raise HTTPException(422, f"The threadId is not valid: {describe(problem)}.") from None


async def _resume(
    conversation: Conversation,
    wanted: RunAgentInput,
    results: Mapping[str, FrontEndResult],
    front_end: FrontEnd,
) -> int:
    replies = {entry.interrupt_id: _reply(entry) for entry in wanted.resume or []}
    after = await conversation.answer({**replies, **results}, wanted.run_id, front_end)
    if after is None:  # the questions had these answers: the run is empty
        return await conversation.finish_empty(wanted.run_id)
    return after


def _reply(entry: ResumeEntry) -> ElicitReply:
    if entry.status == "resolved":
        payload: object = entry.payload
        if payload is not None and not isinstance(payload, dict):
            raise HTTPException(
                422, "The payload of an interrupt must be an object with the form's fields."
            )
        return ElicitReply(action="accept", content=cast("dict[str, Any] | None", payload))
    declined = (entry.metadata or {}).get("action") == "decline"
    return ElicitReply(action="decline" if declined else "cancel")


def _place(wanted: RunAgentInput) -> Place:
    props: object = wanted.forwarded_props
    given = cast("dict[str, object]", props) if isinstance(props, dict) else {}
    place = given.get("headNodeId", HEAD)
    if place is not HEAD and place is not None and not isinstance(place, str):
        raise HTTPException(422, "headNodeId must be the id of a node.")
    return place
