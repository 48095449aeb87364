"""The routes of conversations: threads, trees, files, questions, events and labels."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch._text import IMAGES, media_type
from anabranch.agents import branches_in
from anabranch.chat._web.answers import AnswerRefusedError
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_mapping import shown_data
from anabranch.chat._web.event_stream import EventStream
from anabranch.chat._web.page_files import IMMUTABLE, JAVASCRIPT
from anabranch.chat._web.rate_limits import caller_of, full
from anabranch.chat._web.requests import (
    AnswerBody,
    LabelBody,
    RetryBody,
    ThreadBody,
    json_response,
    read_body,
)
from anabranch.chat._web.run_input import RunTakenError
from anabranch.chat._web.thread_lease import BusyError
from anabranch.chat._web.thread_log import position, shown_id
from anabranch.errors import AnabranchError, StoreError
from anabranch.tree import (
    HEAD,
    LEFT_OUT,
    Navigator,
    Ref,
    Thread,
    Tree,
    is_branch_name,
    refused_blocks,
    tree_to_json,
)

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

ANSWER_STATUS = {
    "unknown": 404,
    "answered": 409,
    "open": 409,
    "closed": 409,
    "expired": 410,
    "invalid": 422,
}
THREADS_LISTED = 200
DIGEST = re.compile("[0-9a-f]{64}")


class Routes:
    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._agent = conversations.agent
        self.routes: list[Route] = [
            Route("/threads", self.threads, methods=["GET"]),
            Route("/threads", self.begin, methods=["POST"]),
            Route("/threads/{id}/tree", self.tree, methods=["GET"]),
            Route("/threads/{id}/files/{digest}", self.file, methods=["GET"]),
            Route("/threads/{id}/pending", self.pending, methods=["GET"]),
            Route("/threads/{id}/answers", self.answer, methods=["POST"]),
            Route("/threads/{id}/events", self.events, methods=["GET"]),
            Route("/threads/{id}/stop", self.stop, methods=["POST"]),
            Route("/threads/{id}/retry", self.retry, methods=["POST"]),
            Route("/threads/{id}/labels", self.label, methods=["POST"]),
            Route("/threads/{id}/labels/{label:path}", self.unlabel, methods=["DELETE"]),
            Route("/tools", self.tools, methods=["GET"]),
            Route("/modules/{name}", self.module, methods=["GET"]),
        ]

    async def threads(self, request: Request) -> Response:
        principal = caller_of(request).principal
        found = await self._agent.store.threads_of(principal, THREADS_LISTED)
        return json_response([_shown(thread) for thread in found])

    async def begin(self, request: Request) -> Response:
        body = await read_body(request, ThreadBody)
        dependencies = self._agent.dependencies
        name = body.id or dependencies.naming("thread")
        owner = caller_of(request).principal
        thread = Thread(name, dependencies.clock.now(), body.system_prompt, body.title, owner)
        is_taken = await self._conversations.find(name, owner) is not None
        if is_taken or not await self._conversations.begin(thread):
            raise HTTPException(409, f"The thread {name!r} already exists.")
        return json_response(_shown(thread), 201)

    async def tree(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        last = await conversation.position()
        # This read follows the look-up of the last event, so later changes have later events.
        running = await conversation.is_running()
        tree = await self._agent.store.tree(conversation.thread_id)
        exported = tree_to_json(tree)
        shown = zip(exported["nodes"], _shown_in(tree), strict=True)
        nodes = [{**node, **data, "interrupted": _interrupted(node)} for node, data in shown]
        ends = {node_id: {"error": end.error} for node_id, end in tree.ends.items()}
        named = {**exported, "thread": conversation.log.shown_id, "nodes": nodes}
        more = {"ends": ends, "position": str(last), "running": running}
        return json_response({**named, **more})

    async def file(self, request: Request) -> Response:
        conversation, digest = await self._conversation(request), request.path_params["digest"]
        found = None
        if DIGEST.fullmatch(digest):
            files = await self._agent.store.files(conversation.thread_id, [digest])
            found = files.get(digest)
        if found is None:
            raise HTTPException(404, "This conversation has no such file.")
        kind = media_type(found)
        shown = "inline" if kind in IMAGES else "attachment"
        headers = {"Content-Disposition": f'{shown}; filename="{digest[:12]}"', **IMMUTABLE}
        return Response(found, media_type=kind or "application/octet-stream", headers=headers)

    async def pending(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        found = await self._conversations.questions.open_in(conversation.thread_id)
        return json_response([each.model_dump(mode="json", by_alias=True) for each in found])

    async def answer(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        body = await read_body(request, AnswerBody)
        caller_of(request).check_run()
        await conversation.answer({body.interrupt_id: body.reply()}, f"run_{secrets.token_hex(8)}")
        return json_response({"interrupt_id": body.interrupt_id, "action": body.action})

    async def events(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        seen = request.headers.get("last-event-id", request.query_params.get("after"))
        after = await conversation.log.id_of() if seen is None else position(seen)
        return EventStream(
            conversation.log,
            after,
            conversation.is_running,
            self._conversations.stopping,
            place=caller_of(request).open_stream(),
        )

    async def stop(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        return json_response({"stopped": await conversation.stop()})

    async def retry(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        body = await read_body(request, RetryBody)
        caller_of(request).check_run()
        if seconds := await self._conversations.backlog.add():
            raise full(seconds)
        run_id = f"run_{secrets.token_hex(8)}"
        await conversation.retry(body.node_id, run_id)
        return json_response({"runId": run_id}, 202)

    async def label(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        body = await read_body(request, LabelBody)
        store = self._agent.store
        node = await store.node(body.node_id)
        if node is None or node.thread_id != conversation.thread_id:
            raise HTTPException(404, f"This conversation has no node {body.node_id!r}.")
        if body.label == HEAD or is_branch_name(body.label):
            raise HTTPException(422, f"The label {body.label!r} is taken. Choose another.")
        await store.set_ref(conversation.thread_id, Ref(body.label, node.id))
        return json_response({"label": body.label, "node_id": node.id})

    async def unlabel(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        name = request.path_params["label"]
        if name == HEAD:
            raise HTTPException(422, "The conversation moves 'head', so it is no label.")
        if not await self._agent.store.delete_ref(conversation.thread_id, name):
            raise HTTPException(404, f"This conversation has no label {name!r}.")
        return json_response({"label": name})

    async def tools(self, request: Request) -> Response:
        del request
        specs = [tool.spec for tool in self._agent.tools.values()]
        return json_response([each.model_dump(mode="json") for each in specs])

    async def module(self, request: Request) -> Response:
        module = self._conversations.modules.get(request.path_params["name"])
        if module is None:
            raise HTTPException(404, "Unknown module. Reload the page.")
        return Response(module.source, headers=IMMUTABLE, media_type=JAVASCRIPT)

    async def _conversation(self, request: Request) -> Conversation:
        name = request.path_params["id"]
        found = await self._conversations.find(name, caller_of(request).principal)
        if found is None:
            raise HTTPException(404, f"Unknown thread {name!r}.")
        return found


async def on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return json_response({"error": error.detail}, error.status_code, error.headers)
    if isinstance(error, AnswerRefusedError):
        errors = [each.model_dump() for each in error.errors]
        shown = {"error": str(error), "reason": error.reason, "errors": errors}
        return json_response(shown, ANSWER_STATUS[error.reason])
    if isinstance(error, StoreError):  # the message describes the server's database
        logger.warning("could not serve a request: %s", error)
        can_not = "read" if request.method == "GET" else "change"
        return json_response(
            {"error": f"The server cannot {can_not} its conversations now. Try again."}, 503
        )
    is_conflict = isinstance(error, BusyError | RunTakenError)
    return json_response({"error": str(error)}, 409 if is_conflict else 422)


ERRORS = dict.fromkeys(
    (HTTPException, AnabranchError, AnswerRefusedError, BusyError, RunTakenError), on_error
)


def _shown_in(tree: Tree) -> Iterator[Mapping[str, JsonValue]]:
    branches = branches_in(tree)
    walk = Navigator(tree)
    for node in tree.nodes:
        own: dict[str, JsonValue] = {}
        if node.id in branches:
            own["branch"] = asdict(branches[node.id])
        if LEFT_OUT in node.data:
            refused = refused_blocks(walk.path(node.id), tree.results)
            own["refused"] = [asdict(each) for each in refused]
        yield {**shown_data(node), **own}


def _interrupted(exported: Mapping[str, Any]) -> list[str]:
    results = (each for each in exported["content"] if each["type"] == "tool_result")
    return [
        each["tool_use_id"]
        for each in results
        if any(one.get("mark") == "no_result" for one in each["content"])
    ]


def _shown(thread: Thread) -> dict[str, object]:
    return {"id": shown_id(thread.id), "title": thread.title, "created_at": thread.created_at}
