"""What a person does in the chat application: everything that it has, so that every kind of id is made."""

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
from tests.owners.people import Answer, Person, first_of
from tests.owners.reads import Reads
from tests.owners.web import MOUNTED, Gates, WebSurface, body_of, chatting, said

PNG = "iVBORw0KGgoA"
"""The beginning of every PNG, in base64."""
STORY = "tests/owners/web_story.py"
SHARED = "regatta"
"""A thread's id that both choose: the second one's is stored under another, which no one learns."""


@dataclass(frozen=True, slots=True)
class TwoPeople:
    """An application that two people have used in the same way, Bo first.

    A tool of Ann's runs until her gate is opened.
    """

    url: str
    web: WebSurface
    ann: Person
    bo: Person
    story: WebStory
    gates: Gates


@asynccontextmanager
async def two_people(
    url: str, folder: Path, patch: pytest.MonkeyPatch
) -> AsyncGenerator[TwoPeople]:
    """Serve the application, and let both use all of it."""
    reads, gates = Reads(patch), Gates()
    ann, bo = Person("ann", "heron"), Person("bo", "osprey")
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
            yield TwoPeople(url, web, ann, bo, story, gates)
        finally:
            gates.open()


class WebStory:
    """One person's use of the application.

    Attributes:
        asked: their thread in which a question is open.
        held: their thread in which a tool runs until their gate is opened.
    """

    def __init__(self, web: WebSurface, person: Person) -> None:
        self.person = person
        self._web = web
        self.asked = person.new("thread")
        self.held = person.new("thread")

    async def do(self, operation: str, **given: Any) -> Any:
        method, path = operation.split(" ", 1)
        answer = await use(self._web, self.person, f"{method} {MOUNTED}{path}", given)
        assert answer.is_done, f"{operation} of {self.person.name}: {answer.whole}"
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
        body = said(thread, self.person.fresh("run"), content, **more)
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
        """All that the person can read of what is theirs, as it is now."""
        return [
            await self._web.do(self.person, each.operation, each.given)
            for each in first_of(self.person.uses)
            if each.operation.startswith("GET ") and "/events" not in each.operation
        ]

    async def resume(self) -> None:
        """Answer the question that is open, and see the tool end that ran all the time."""
        [question] = await self.pending(self.asked)
        entry = {
            "interruptId": question["interrupt_id"],
            "status": "resolved",
            "payload": {"row": 3},
        }
        body = {**body_of(self.asked, self.person.fresh("run")), "resume": [entry]}
        assert "Row 3 on boat" in await self.do("POST /agui", body=body)
        path = {"id": self.held}
        shown = ""
        while "Opened: " not in shown:
            shown = str(await self.do("GET /threads/{id}/events", path=path, query={"after": "0"}))

    async def _begin(self) -> None:
        me = self.person
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
        await self.say(self.asked, self._using("reserve", flight=self.person.text("boat")))
        [question] = await self.pending(self.asked)
        assert question["interrupt_id"]
        path = {"id": self.asked}
        shown = str(await self.do("GET /threads/{id}/events", path=path, query={"after": "0"}))
        before = {"last-event-id": shown.partition("\n")[0].removeprefix("id: ")}
        await self.do("GET /threads/{id}/events", path=path, headers=before)

    async def _answer(self) -> None:
        shown = self.person.new("thread")
        await self.say(shown, self._using("pick_card", count=3))
        [question] = await self.pending(shown)
        await self.do("GET /modules/{name}", path={"name": question["module"].split("/")[1]})
        resumed = self.person.new("thread")
        content = {"row": 7, "note": self.person.word}
        await self.say(resumed, self._using("reserve"))
        [question] = await self.pending(resumed)
        entry = {"interruptId": question["interrupt_id"], "status": "resolved", "payload": content}
        body = {**body_of(resumed, self.person.fresh("run")), "resume": [entry]}
        await self.do("POST /agui", body=body)
        posted = self.person.new("thread")
        await self.say(posted, self._using("reserve"))
        [question] = await self.pending(posted)
        answer = {"interrupt_id": question["interrupt_id"], "action": "accept", "content": content}
        await self.do("POST /threads/{id}/answers", path={"id": posted}, body=answer)

    async def _run(self) -> None:
        stopped = self.person.new("thread")
        for thread in (self.held, stopped, SHARED):
            body = said(thread, self.person.new("run"), self._using("hold", place=self.person.word))
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
        thread, me = self.person.new("thread"), self.person
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
        thread = self.person.new("thread")
        pixels = PNG + self.person.word * 4  # base64: with the word, another's file is no id
        source = {"type": "data", "value": pixels, "mimeType": "image/png"}
        text = {"type": "text", "text": self.person.text("See the regatta.")}
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
        return f"{self.person.text('Please')}\nuse {tool} {json.dumps(given)}"


def _read(answer: Answer) -> Any:
    try:
        return json.loads(answer.text)
    except ValueError:
        return answer.text
