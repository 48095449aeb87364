"""A timeline: one path of the conversation tree that a turn extends, by replies of the model.

Each node is stored before the next action, so the thread is valid wherever a turn is interrupted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from itertools import takewhile
from typing import TypeAlias, TypeVar

from pydantic import JsonValue

from anabranch._aio import run_shielded
from anabranch._asking import with_own_ids
from anabranch.agents._agent_dependencies import AgentDependencies, Model
from anabranch.agents._branch_progress import said_in
from anabranch.agents._events import BranchResumed, TextReceived, ToolEnded
from anabranch.agents._turn_limits import AdmittedRequest, Charge, Meter, UsageTotal
from anabranch.agents._working_branch import BRANCH_RETURN, WorkingBranch, warns
from anabranch.errors import ToolError
from anabranch.messages import (
    Block,
    Message,
    ResultBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    user,
)
from anabranch.models import INTERRUPTED, ModelError, SampleStream
from anabranch.tree import (
    HEAD,
    LEFT_OUT,
    Node,
    Path,
    Place,
    Ref,
    Result,
    Thread,
    load_files,
    media_places,
    project,
    reasoning_places,
    store_files,
    text_places,
    without,
)

logger: logging.Logger = logging.getLogger("anabranch.agents")

B = TypeVar("B", Block, ResultBlock)
RequestMessages: TypeAlias = tuple[Message, ...]


class Timeline:
    """A path in ``thread`` that a turn extends with nodes.

    Attributes:
        last_request: the node of the last request to the model, ``None`` before the first.
        last_text: the text of the last reply with a text.
        branch_of_folding: the branch of folding whose budget applies as well; ``None`` at the root.
    """

    def __init__(self, dependencies: AgentDependencies, thread: Thread, meter: Meter) -> None:
        self.dependencies = dependencies
        self.thread = thread
        self.meter = meter
        self.moves_head = True
        self.last_added: Node | None = None
        self.last_request: Node | None = None
        self.last_text: str = ""
        self.branch_of_folding: WorkingBranch | None = None

    def branch(self, working: WorkingBranch | None = None) -> Timeline:
        """Return a timeline of the same meter, in ``working`` or a fork of this timeline's branch."""
        branch = copy(self)
        branch.moves_head = False
        branch.last_added, branch.last_request, branch.last_text = None, None, ""
        if working is not None or self.branch_of_folding is None:
            branch.branch_of_folding = working
        else:
            branch.branch_of_folding = self.branch_of_folding.fork()
        return branch

    async def continue_from(self, nodes: Sequence[Node], path: Path) -> None:
        self.last_added, self.last_text = nodes[-1], said_in(nodes)
        replies = [at for at, node in enumerate(nodes) if node.kind == "assistant"]
        if replies:
            self.last_request, reply = nodes[replies[-1] - 1], nodes[replies[-1]]
            if (working := self.branch_of_folding) is not None:
                before = takewhile(lambda node: node.id != reply.id, path.nodes)
                working.continue_from(self._request(project(before, path.results)), reply)
                ids = {node.id for node in nodes}
                own = (each for each in path.results.values() if each.node_id in ids)
                working.has_warned = working.has_warned or any(map(warns, own))
        await self.dependencies.listener(BranchResumed(tuple(nodes)))

    # -- requests to the model ---------------------------------------------------------------

    async def reply(
        self, path: Path, messages: RequestMessages | None = None, *, concludes: bool = False
    ) -> Node:
        """Store the model's reply after ``path``, or the part that was received before an error."""
        node, messages = path.nodes[-1], messages or project(path.nodes, path.results)
        request = await self.with_files(self._request(messages))
        if concludes:
            request = self._concluding(request)
        stream: SampleStream | None = None
        async with self._admitted(request) as admitted:
            try:
                self.last_request = node
                asked = _RefusableRequest(admitted.request)
                while stream is None:
                    try:
                        async with self.dependencies.model.stream(asked.request) as stream:
                            await self._receive(node, stream)
                    except ModelError as error:
                        if stream is not None or not asked.leave_out(error):
                            raise
            except BaseException as error:
                # A turn that is continued later asks the model again.
                if stream is not None and not self.dependencies.suspension.begun:
                    is_interrupted = isinstance(error, asyncio.CancelledError)
                    reason = "interrupted" if is_interrupted else "error"
                    part = self._try_to_store_part(node, stream.reply, reason, admitted)
                    await run_shielded(part)
                raise
            charge = await admitted.settle(stream.reply)
        return await self._store_reply(node, stream.reply, charge, asked.left_out)

    async def sample(
        self, request: SampleRequest, model: Model | None = None, total: UsageTotal | None = None
    ) -> SampleReply:
        """Return a model's reply to ``request`` within the limits, outside the thread."""
        request = await self.with_files(request)
        async with self._admitted(request, aside=True) as admitted:
            reply = await (model or self.dependencies.model).sample(admitted.request)
            charge = await admitted.settle(reply)
        if total is not None:
            total.add(reply.usage, charge.cost, estimate=charge.estimate)
        return reply

    async def aside(
        self, prompt: str, model: Model | None = None, total: UsageTotal | None = None
    ) -> str:
        limits = self.dependencies.limits
        request = SampleRequest(messages=(user(prompt),), max_tokens=limits.max_reply_tokens)
        return (await self.sample(request, model, total)).text

    async def with_files(self, request: SampleRequest) -> SampleRequest:
        messages = await load_files(self.dependencies.store, self.thread.id, request.messages)
        return request.model_copy(update={"messages": messages})

    async def stored(self, content: Iterable[B]) -> tuple[B, ...]:
        return await store_files(self.dependencies.store, self.thread.id, content)

    def _request(self, messages: RequestMessages) -> SampleRequest:
        return SampleRequest(
            messages=messages,
            max_tokens=self.dependencies.limits.max_reply_tokens,
            system_prompt=self.dependencies.system_prompt(self.thread.system_prompt),
            tools=tuple(self.dependencies.tool_specs()) or None,
        )

    def _concluding(self, request: SampleRequest) -> SampleRequest:
        """Return ``request`` with ``branch_return`` alone; a fork cannot return, and uses no tool."""
        working, tools = self.branch_of_folding, request.tools or ()
        only = tuple(each for each in tools if each.name == BRANCH_RETURN)
        if working is None or working.is_fork or not only:
            return request.model_copy(update={"tool_choice": "none" if tools else None})
        return request.model_copy(update={"tools": only, "tool_choice": "required"})

    def _admitted(
        self, request: SampleRequest, *, aside: bool = False
    ) -> AbstractAsyncContextManager[AdmittedRequest]:
        working = self.branch_of_folding
        if working is None:
            return self.meter.admitted(request)
        return working.admitted(request, self.meter, aside=aside)

    async def _receive(self, node: Node, stream: SampleStream) -> None:
        async for text in stream:
            await self.dependencies.listener(TextReceived(node.id, text))
        if stream.reply.stop_reason == INTERRUPTED:
            raise ToolError("The model's answer ended before it was complete.")

    # -- writing nodes -----------------------------------------------------------------------

    async def add(self, node: Node) -> Node:
        [self.last_added] = await self.dependencies.add([node], (), self._refs(node))
        return self.last_added

    async def add_all(
        self,
        nodes: Sequence[Node],
        results: Sequence[Result] = (),
        events: Sequence[ToolEnded] = (),
    ) -> None:
        await self.dependencies.write(nodes, results, self._refs(nodes[-1]), events)
        self.last_added = nodes[-1]

    def _refs(self, last: Node) -> Sequence[Ref]:
        return [Ref(HEAD, last.id)] if self.moves_head else []

    async def _store_reply(
        self, node: Node, reply: SampleReply, charge: Charge, left_out: Sequence[Place] = ()
    ) -> Node:
        data: dict[str, JsonValue] = {"model": reply.model, "stop_reason": reply.stop_reason}
        if left_out:
            data[LEFT_OUT] = [list(place) for place in left_out]
        data |= charge.data
        blocks = await self.stored(with_own_ids(reply.content, set(), unnamed="use"))
        self.last_text = reply.text or self.last_text
        return await self.add(
            self.dependencies.node(
                self.thread.id, node.id, "assistant", blocks, usage=reply.usage, data=data
            )
        )

    async def _try_to_store_part(
        self, node: Node, reply: SampleReply, reason: str, admitted: AdmittedRequest
    ) -> None:
        text = (TextBlock(text=reply.text),)
        part = reply.model_copy(update={"content": text, "stop_reason": reason})
        try:
            charge = await admitted.settle(reply)
            if reply.text:
                await self._store_reply(node, part, charge)
        except Exception:
            # The cancellation, or the model's error, is about to be raised and must not be
            # replaced by an error of the store or of a listener.
            logger.exception("the partial reply at %r could not be stored", node.id)


class _RefusableRequest:
    """A request, which is sent again without the blocks that its provider refuses.

    If the provider names no block, the first of these groups is left out: the newest unanswered
    image or sound; the reasoning; all images and sounds; all unanswered texts except the newest.
    """

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.left_out: list[Place] = []

    def leave_out(self, error: ModelError) -> bool:
        refused = self._refused(error) if error.refused else []
        if refused:
            self.left_out += refused
            messages = without(self.request.messages, refused)
            self.request = self.request.model_copy(update={"messages": messages})
            logger.warning(
                "the model is asked again, without the blocks that its provider refuses: %s", error
            )
        return bool(refused)

    def _refused(self, error: ModelError) -> list[Place]:
        messages = self.request.messages
        media, reasoning = media_places(messages), reasoning_places(messages)
        texts = [place for place in text_places(messages) if place not in self.left_out]
        if (at := error.at) is not None:
            named = [place for place in (*media, *reasoning, *texts) if place[: len(at)] == at]
            near = [place for place in media if place[0] == at[0]]
            if named or near:
                return named or near[-1:]
        replies = [n for n, each in enumerate(messages) if each.role == "assistant"]
        last = replies[-1] if replies else -1
        newest = [place for place in media if place[0] > last][-1:]
        return newest or reasoning or media or self._unanswered(texts, last)

    def _unanswered(self, texts: list[Place], last: int) -> list[Place]:
        end = len(self.request.messages) - 1
        newest = (end, len(self.request.messages[end].content) - 1)
        return [place for place in texts if place[0] > last and place[:2] != newest]
