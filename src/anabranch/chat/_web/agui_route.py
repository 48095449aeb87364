"""``POST /agui``: starts a run of AG-UI 1.0 with a new message, or with answers to the last run.

The conversation is the server's tree. Of the messages that a client sends, only those at the end
are new: the user's last message, and results. A file's bytes decide its type. Providers fetch
addresses, and this server never does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from mimetypes import guess_type
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from ag_ui.core import ResumeEntry, RunAgentInput, UserMessage
from ag_ui.core.types import AudioPart, DataSource, DocumentPart, FileSource, ImagePart, VideoPart
from pydantic import ValidationError, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from anabranch._asking import describe
from anabranch._text import read_base64
from anabranch.agents import FrontEnd, FrontEndResult
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_stream import EventStream
from anabranch.chat._web.front_end_input import is_answer, read_front_end, results_in
from anabranch.chat._web.rate_limits import caller_of, full
from anabranch.chat._web.requests import ThreadBody, check_name, read_body
from anabranch.chat._web.run_input import HEAD, Message, Place
from anabranch.chat._web.turn_work import TurnWork
from anabranch.messages import ElicitReply, FileBlock
from anabranch.tree import Thread, file_block

TITLE = 60
MOST_FILES = 20
LONGEST_URL = 2_000

_FilePart: TypeAlias = ImagePart | AudioPart | VideoPart | DocumentPart
_ANY_TYPE = {"image": "image/*", "audio": "audio/*", "document": "application/octet-stream"}


class RunInput(RunAgentInput):
    """The input of a run; its files may have the form ``binary`` of earlier AG-UI versions."""

    @model_validator(mode="before")
    @classmethod
    def _parts(cls, given: Any) -> Any:  # noqa: ANN401 - any JSON
        for message in map(_object, _list(_object(given).get("messages"))):
            if parts := _list(message.get("content")):
                message["content"] = [_present_part(part) for part in parts]
        return given


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
                said, files = _given_message(wanted, _place(wanted))
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
        now = conversations.agent.dependencies.clock.now()
        title = message.text or ", ".join(block.name for block in message.files)
        new = Thread(name, now, title=title[:TITLE], owner=principal)
        await TurnWork(conversations.agent, new).check(message)
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


def _object(given: object) -> dict[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _list(given: object) -> Sequence[Any]:
    return cast("Sequence[Any]", given) if isinstance(given, list) else []


def _present_part(part: Any) -> Any:  # noqa: ANN401 - any JSON
    fields = _object(part)
    if fields.get("type") != "binary":
        return part
    kind = str(fields.get("mimeType")).partition("/")[0]
    place = "url" if fields.get("data") is None else "data"
    return {
        "type": kind if kind in ("image", "audio", "video") else "document",
        "source": {"type": place, "value": fields.get(place), "mimeType": fields.get("mimeType")},
        "metadata": {"filename": fields.get("filename")},
    }


def _given_message(wanted: RunAgentInput, place: Place) -> tuple[Message, dict[str, bytes]]:
    """Return the user's message, and the bytes of its files by digest."""
    last = wanted.messages[-1] if wanted.messages else None
    if not isinstance(last, UserMessage):
        raise HTTPException(
            422, "A run starts with a message of the user, the result of a tool, or resume."
        )
    if isinstance(last.content, str):
        return Message(last.content, place, id=last.id), {}
    text = "\n".join(part.text for part in last.content if part.type == "text")
    parts = [part for part in last.content if part.type != "text"]
    if len(parts) > MOST_FILES:
        raise HTTPException(422, f"A message can have {MOST_FILES} files, got {len(parts)}.")
    files: dict[str, bytes] = {}
    blocks = tuple(_block(part, files) for part in parts)
    return Message(text, place, blocks, last.id), files


def _block(part: _FilePart, files: dict[str, bytes]) -> FileBlock:
    if isinstance(part, VideoPart):
        raise HTTPException(422, "Messages can have images, sounds and documents, but no video.")
    source, name = part.source, _name(part.metadata)
    if isinstance(source, FileSource):
        raise HTTPException(
            422, "Files stored at a provider are not supported. Send the file's bytes."
        )
    if not isinstance(source, DataSource) and not source.value.startswith("data:"):
        return _address(part, source.value, source.mime_type)
    try:
        data = read_base64(source.value)
    except ValueError:
        raise HTTPException(422, f"The data of {name or 'a file'} is not base64.") from None
    block = file_block(data, name)
    files[block.digest or ""] = data
    return block


def _address(part: ImagePart | AudioPart | DocumentPart, url: str, given: str | None) -> FileBlock:
    try:
        where = urlsplit(url)
    except ValueError:
        where = urlsplit("")
    if where.scheme not in ("http", "https") or not where.netloc or len(url) > LONGEST_URL:
        raise HTTPException(
            422,
            f"The address of a file must start with https:// and have at most {LONGEST_URL} characters.",
        )
    return FileBlock(mime_type=given or guess_type(where.path)[0] or _ANY_TYPE[part.type], url=url)


def _name(metadata: object) -> str:
    fields = _object(metadata)
    return next((str(fields[key]) for key in ("filename", "name") if fields.get(key)), "")
