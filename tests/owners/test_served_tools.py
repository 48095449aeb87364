"""With two callers of one ``anabranch serve``, no tool shows or continues the other caller's data."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.harness import HANDSHAKE, MODERN
from tests.owners.attack import Attack, use, use_the_rest
from tests.owners.mcp_server import McpSurface, serving_tools
from tests.owners.rows import rows_about, rows_of
from tests.owners.users import Answer, User, ids_of
from tests.postgres import Server

STORY = "tests/owners/test_served_tools.py"
BUDGET = 50_000_000
HANDLE = re.compile(r"call='([^']+)'")


class Calls:
    def __init__(self, tools: McpSurface, me: User) -> None:
        self._tools = tools
        self.me = me

    async def do(self, tool: str, **given: Any) -> Answer:
        return await use(self._tools, self.me, tool, given)

    async def handle(self, *, forms: bool) -> str:
        """Return the handle of an open call."""
        answer = await self.do("survey", about=self.me.text("boats"), forms=forms)
        found = HANDLE.search(answer.text)
        assert found, answer.text
        return found[1]

    async def live(self) -> None:
        await self._remember()
        await self._branch()
        answered = {"question": "survey/elicit.1", "action": "accept", "content": {"text": "yes"}}
        await self.do("answer_questions", call=await self.handle(forms=False), answers=[answered])
        # In the handshake era, a connection may ask any number of questions.
        if self._tools.mode == MODERN:
            await self.do("continue_call", call=await self.handle(forms=True))
        await use_the_rest(self._tools, self.me, STORY, beside=self.unused)

    @property
    def unused(self) -> list[str]:
        """Return the tools without a use in this era."""
        return [] if self._tools.mode == MODERN else ["continue_call"]

    async def _remember(self) -> None:
        note = {"title": "Regatta", "description": "On a regatta", "content": "Row the regatta."}
        given = {name: self.me.text(text) for name, text in note.items()}
        noted = await self.do("memory_record", **given)
        await self.do("memory_search", query="regatta")
        [memory] = set(re.findall(r"mem_[\w-]+", noted.text))
        await self.do("memory_feedback", memory_id=memory, helpful=True)

    async def _branch(self) -> None:
        session, text = self.me.new("session"), self.me.text
        task = {"description": text("The regatta"), "prompt": text("Row the regatta.")}
        made = await self.do("branch_create", **task, session_id=session, budget=BUDGET)
        branch = json.loads(made.text)[1]["branch_id"]
        here = {"branch_id": branch, "session_id": session}
        await self.do("branch_report", tokens=9, partial=text("Rowing"), **here)
        await self.do("branch_status", **here)
        await self.do("branch_create", **task, parent_branch_id=branch, session_id=session)
        await self.do("branch_return", message=text("Rowed"), session_id=session)


async def both(tools: McpSurface) -> tuple[Calls, Calls]:
    """Return two callers who have used every tool; Ann was first."""
    bo, ann = (Calls(tools, User(*each)) for each in (("bo", "osprey"), ("ann", "heron")))
    for each in (bo, ann):
        await each.live()
    return ann, bo


@pytest.mark.parametrize(
    ("where", "mode"),
    [
        pytest.param("sqlite", MODERN, id="sqlite-modern"),
        pytest.param("sqlite", HANDSHAKE, id="sqlite-handshake", marks=pytest.mark.long),
        pytest.param("postgresql", MODERN, id="postgresql-modern", marks=pytest.mark.long),
    ],
)
async def test_no_tool_shows_or_changes_data_of_another_caller(
    where: str, mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Try every listed tool; afterwards the owner continues undisturbed."""
    url = f"sqlite:///{tmp_path}/all.db"
    if where == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        url = server.new_url()
    async with serving_tools(url, mode) as tools:
        ann, bo = await both(tools)
        still_open = await ann.handle(forms=False)
        ids = {**ids_of(ann.me, bo.me.uses), "open": [still_open]}
        before = rows_about(rows_of(url), [ann.me.word])
        found = await Attack(tools, ann.me, bo.me, ids).run()
        assert not found, "\n".join(found)
        after = rows_of(url)
        assert not (gone := before - after), f"changed: {gone}"
        assert not (new := rows_about(after, [ann.me.word]) - before), f"stored again: {new}"
        answered = {"question": "survey/elicit.1", "action": "accept", "content": {"text": "yes"}}
        ended = await ann.do("answer_questions", call=still_open, answers=[answered])
        assert ann.me.text("boats") in ended.text
        [session] = ids["session-"]
        assert (await ann.do("branch_return", message="Done", session_id=session)).is_done


FORGETFUL = """
from anabranch.folding import BranchService
from anabranch.memory import ReasoningBank
from tests.owners.asking import survey

of = ReasoningBank.of
ReasoningBank.of = lambda self, principal: of(self, "everyone")
BranchService.of = lambda self, principal: self
"""


@pytest.mark.long
async def test_the_attack_finds_a_server_without_owners(tmp_path: Path) -> None:
    """A server that keeps branches and notes without their owner."""
    target = tmp_path / "forgetful.py"
    target.write_text(FORGETFUL)
    async with serving_tools(f"sqlite:///{tmp_path}/all.db", MODERN, target) as tools:
        ann, bo = await both(tools)
        attack = Attack(tools, ann.me, bo.me, ids_of(ann.me, bo.me.uses))
        found = "\n".join(await attack.run(["memory_search", "branch_status"]))
        assert "memory_search as before shows 'heron' of ann" in found
        assert "branch_status with br_" in found
