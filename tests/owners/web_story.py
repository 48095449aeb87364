"""Lets a user perform every operation of the chat application, so that every kind of id exists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.owners.attack import use, use_the_rest
from tests.owners.reads import Reads
from tests.owners.users import Answer, User, first_of
from tests.owners.web import MOUNTED, Gates, WebSurface, body_of, chatting, said

PNG = "iVBORw0KGgoA"
"""The first bytes of every PNG, in base64."""
STORY = "tests/owners/web_story.py"
SHARED = "regatta"
"""A thread id that both users choose. The store keeps the second thread under a secret id."""


@dataclass(frozen=True, slots=True)
class TwoUsers:
    """An application that two users have used in the same way; Bo was first.

    One of Ann's tools runs until the test opens her gate.
    """

    url: str
    web: WebSurface
    ann: User
    bo: User
    story: WebStory
    gates: Gates


@asynccontextmanager
async def two_users(url: str, folder: Path, patch: pytest.MonkeyPatch) -> AsyncGenerator[TwoUsers]:
    """Serve the application, and let both users perform every operation."""
    reads, gates = Reads(patch), Gates()
    ann, bo = User("ann", "heron"), User("bo", "osprey")
    gates.closed = {each.word: asyncio.Event() for each in (ann, bo)}
    async with chatting(url, folder, gates) as served:
        web = WebSurface(served, reads)
        for each in (bo, ann):
            story = WebStory(web, each)
            await story.live()
            await use_the_rest(web, each, STORY)
        assert not web.unread(), f"{web.unread()} read a body, and not by read_body: see {STORY}"
        gates.closed[bo.word].set()
        try:
            yield TwoUsers(url, web, ann, bo, story, gates)
        finally:
            gates.open()


class WebStory:
    """One user's operations in the application.

    Attributes:
        asked: the user's thread with an open question.
        held: the user's thread in which a tool runs until the test opens the user's gate.
    """

    def __init__(self, web: WebSurface, user: User) -> None:
        self.user = user
        self._web = web
        self.asked = user.new("thread")
        self.held = user.new("thread")

    async def do(self, operation: str, **given: Any) -> Any:
        method, path = operation.split(" ", 1)
        answer = await use(self._web, self.user, f"{method} {MOUNTED}{path}", given)
        assert answer.is_done, f"{operation} of {self.user.name}: {answer.whole}"
        return _read(answer)

    async def live(self) -> None:
        await self._begin()
        await self._ask()
        await self._answer()
        await self._run()
        await self._remember()
        await self._attach()
        await self._look()

    async def say(self, thread: str, content: str | list[Any], **more: Any) -> str:
        body = said(thread, self.user.fresh("run"), content, **more)
        return str(await self.do("POST /agui", body=body))

    async def pending(self, thread: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.do(
            "GET /threads/{id}/pending", path={"id": thread}
        )
        return found

    async def tree(self, thread: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.do("GET /threads/{id}/tree", path={"id": thread})
        return found

    async def everything(self) -> list[Answer]:
        """Return the current answers to all reads of the user's data."""
        return [
            await self._web.do(self.user, each.operation, each.given)
            for each in first_of(self.user.uses)
            if each.operation.startswith("GET ") and "/events" not in each.operation
        ]

    async def resume(self) -> None:
        """Answer the open question, and wait for the end of the running tool."""
        [question] = await self.pending(self.asked)
        entry = {
            "interruptId": question["interrupt_id"],
            "status": "resolved",
            "payload": {"row": 3},
        }
        body = {**body_of(self.asked, self.user.fresh("run")), "resume": [entry]}
        assert "Row 3 on boat" in await self.do("POST /agui", body=body)
        path = {"id": self.held}
        shown = ""
        while "Opened: " not in shown:
            shown = str(await self.do("GET /threads/{id}/events", path=path, query={"after": "0"}))

    async def _begin(self) -> None:
        me = self.user
        thread = {
            "id": me.new("thread"),
            "title": me.text("A regatta"),
            "system_prompt": me.text("Row"),
        }
        await self.do("POST /threads", body=thread)
        await self.say(thread["id"], me.text("The regatta is at noon."))
        nodes = (await self.tree(thread["id"]))["nodes"]
        await self.say(
            thread["id"], me.text("At one."), forwardedProps={"headNodeId": nodes[-1]["id"]}
        )
        for label in (me.new("label"), me.new("label")):
            body = {"node_id": nodes[0]["id"], "label": label}
            await self.do("POST /threads/{id}/labels", path={"id": thread["id"]}, body=body)
        path = {"id": thread["id"], "label": label}
        await self.do("DELETE /threads/{id}/labels/{label:path}", path=path)

    async def _ask(self) -> None:
        await self.say(self.asked, self._using("reserve", flight=self.user.text("boat")))
        [question] = await self.pending(self.asked)
        assert question["interrupt_id"]
        path = {"id": self.asked}
        shown = str(await self.do("GET /threads/{id}/events", path=path, query={"after": "0"}))
        before = {"last-event-id": shown.partition("\n")[0].removeprefix("id: ")}
        await self.do("GET /threads/{id}/events", path=path, headers=before)

    async def _answer(self) -> None:
        shown = self.user.new("thread")
        await self.say(shown, self._using("pick_card", count=3))
        [question] = await self.pending(shown)
        await self.do("GET /modules/{name}", path={"name": question["module"].split("/")[1]})
        resumed = self.user.new("thread")
        content = {"row": 7, "note": self.user.word}
        await self.say(resumed, self._using("reserve"))
        [question] = await self.pending(resumed)
        entry = {"interruptId": question["interrupt_id"], "status": "resolved", "payload": content}
        body = {**body_of(resumed, self.user.fresh("run")), "resume": [entry]}
        await self.do("POST /agui", body=body)
        posted = self.user.new("thread")
        await self.say(posted, self._using("reserve"))
        [question] = await self.pending(posted)
        answer = {"interrupt_id": question["interrupt_id"], "action": "accept", "content": content}
        await self.do("POST /threads/{id}/answers", path={"id": posted}, body=answer)

    async def _run(self) -> None:
        stopped = self.user.new("thread")
        for thread in (self.held, stopped, SHARED):
            body = said(thread, self.user.new("run"), self._using("hold", place=self.user.word))
            await self.do("POST /agui", body=body, headers={"accept": "application/json"})
            assert (await self.tree(thread))["running"]
        for thread in (stopped, SHARED):
            path = {"id": thread}
            await self.do("POST /threads/{id}/stop", path=path)
            tree = await self.tree(thread)
            [ended] = tree["ends"]
            await self.do("POST /threads/{id}/retry", path=path, body={"node_id": ended})
            query = {"after": tree["position"]}
            shown = str(await self.do("GET /threads/{id}/events", path=path, query=query))
            assert f'"threadId":"{thread}"' in shown, shown
            await self.do("POST /threads/{id}/stop", path=path)

    async def _remember(self) -> None:
        thread, me = self.user.new("thread"), self.user
        for number in range(2):
            note = {
                "title": me.text(f"The regatta, {number}"),
                "description": me.text("When a regatta is planned"),
                "content": me.text(f"Plan {number} of the regatta."),
            }
            await self.say(thread, self._using("memory_record", **note))
        branch = {"description": me.text("The regatta"), "prompt": me.text("Plan the regatta.")}
        await self.say(thread, self._using("branch_create", **branch))
        found = await self.do("GET /memories", query={"query": "regatta"})
        assert len(found) >= 2, f"{me.name} finds {found}"
        first, second, *_ = (each["id"] for each in await self.do("GET /memories"))
        await self.say(thread, self._using("memory_feedback", memory_id=first, helpful=True))
        await self.do("GET /memories/{id}", path={"id": first})
        await self.do("DELETE /memories/{id}", path={"id": second})

    async def _attach(self) -> None:
        thread = self.user.new("thread")
        # The word is in the file, so that the files of two users have different ids.
        pixels = PNG + self.user.word * 4
        source = {"type": "data", "value": pixels, "mimeType": "image/png"}
        text = {"type": "text", "text": self.user.text("See the regatta.")}
        await self.say(thread, [text, {"type": "image", "source": source}])
        blocks = [block for node in (await self.tree(thread))["nodes"] for block in node["content"]]
        [digest] = {block["digest"] for block in blocks if block["type"] == "file"}
        path = {"id": thread, "digest": digest}
        await self.do("GET /threads/{id}/files/{digest}", path=path)

    async def _look(self) -> None:
        await self.do("GET /threads")
        await self.do("GET /tools")
        await self.do("GET /rooms")
        await self.do("GET /")

    def _using(self, tool: str, **given: Any) -> str:
        return f"{self.user.text('Please')}\nuse {tool} {json.dumps(given)}"


def _read(answer: Answer) -> Any:
    try:
        return json.loads(answer.text)
    except ValueError:
        return answer.text
