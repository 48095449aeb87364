"""With two users in one chat application, no tool of the agent shows one user the other's data."""

import json

import pytest

from anabranch.folding import BranchService
from tests.owners.attack import Attack, use, use_the_rest
from tests.owners.rows import rows_about, rows_of
from tests.owners.users import User, ids_of
from tests.owners.web import IN_BRANCH, MOUNTED, ToolSurface
from tests.owners.web_story import TwoUsers
from tests.randomised import LONG

STORY = "tests/owners/test_agent_tools.py"


async def use_every_tool(tools: ToolSurface, me: User) -> None:
    """Use each of the agent's tools, as a model does when its user asks."""
    note = {"title": "Regatta", "description": "On a regatta", "content": "Row the regatta."}
    story: dict[str, dict[str, object]] = {
        "memory_record": {name: me.text(text) for name, text in note.items()},
        "memory_search": {"query": "regatta"},
        "branch_create": {"description": "The regatta", "prompt": me.text("Row the regatta.")},
        "branch_self": {"prompts": [me.text("Row"), me.text("Swim")], "allow_work": True},
        "hold": {"place": "pier"},
        "reserve": {"flight": me.text("boat")},
    }
    for name, given in story.items():
        assert (await use(tools, me, name, given)).is_done
    [note_id, *_], [branch, *_] = ids_of(me, [])["mem_"], ids_of(me, [])["br_"]
    await use(tools, me, "memory_feedback", {"memory_id": note_id, "helpful": True})
    for where in ("branch_status", f"branch_status{IN_BRANCH}"):
        await use(tools, me, where, {"branch_id": branch})
    inside = {"message": me.text("Rowed."), "extract_memory": True}
    await use(tools, me, f"branch_return{IN_BRANCH}", inside)
    outside = await use(tools, me, "branch_return", inside)
    assert "FOLD006" in outside.text
    await use_the_rest(tools, me, STORY, beside=["branch_return"])


@pytest.fixture(scope="module")
async def used(here: TwoUsers) -> tuple[ToolSurface, User, User]:
    """Return the tools that ``GET /tools`` lists, and both users, who have used all tools; Ann was first."""
    listed = await here.web.do(here.bo, f"GET {MOUNTED}/tools", {})
    tools = ToolSurface(here.web, json.loads(listed.text))
    here.gates.closed[here.ann.word].set()
    bo, ann = (User(each.name, each.word) for each in (here.bo, here.ann))
    for each in (bo, ann):
        await use_every_tool(tools, each)
    ann.uses += here.ann.uses
    return tools, ann, bo


async def test_no_tool_of_the_agent_shows_data_of_another_user(
    here: TwoUsers, used: tuple[ToolSurface, User, User]
) -> None:
    """Try every tool, in a conversation and in a branch, with ids from the routes and the tools."""
    tools, ann, bo = used
    before = rows_about(rows_of(here.url), [ann.word])
    in_branch = [each for each in tools.operations() if each.endswith(IN_BRANCH)]
    attack = Attack(tools, ann, bo, ids_of(ann, [*here.bo.uses, *bo.uses]))
    found = await attack.run(as_used=[] if LONG else in_branch)
    assert not found, "\n".join(found)
    after = rows_of(here.url)
    assert not (gone := before - after), f"changed: {gone}"
    assert not (new := rows_about(after, [ann.word]) - before), f"stored again: {new}"
    again = await use(tools, ann, "memory_search", {"query": "regatta"})
    assert ann.word in again.text


def of_all(branches: BranchService, principal: str) -> BranchService:
    return branches


async def test_the_attack_finds_branches_without_an_owner(
    here: TwoUsers, used: tuple[ToolSurface, User, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, ann, bo = used
    monkeypatch.setattr(BranchService, "of", of_all)
    attack = Attack(tools, ann, bo, ids_of(ann, [*here.bo.uses, *bo.uses]))
    found = "\n".join(await attack.run(["branch_status"]))
    assert "as branch_id answers" in found
    assert "that this one exists" in found
