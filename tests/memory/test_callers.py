"""The owner of a memory: one caller's notes are read, injected, rated and listed for no other caller."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError
from starlette.requests import Request

from anabranch.agents import Agent, Folding
from anabranch.folding import BankMemory, BranchService
from anabranch.memory import (
    Banks,
    Distiller,
    Draft,
    Filter,
    Level,
    LevelError,
    MemoryStore,
    ReasoningBank,
    Scope,
    Scopes,
    memory_tools,
)
from anabranch.messages import SampleRequest
from anabranch.models import Reply, ScriptedModel
from anabranch.stores import open_branch_store, open_tree_store
from anabranch.testing import MockModel, calls
from anabranch.tree import Thread
from tests.agents.harness import heard
from tests.chat.web import browsing, message, run

ANN, BO = {"X-User": "ann"}, {"X-User": "bo"}
NOTE = {"title": "Locks", "description": "When a door is locked", "content": "Ann has the key."}


async def known(request: Request) -> str | None:
    return request.headers.get("x-user")


def decide(request: SampleRequest) -> Any:
    """Do what the user says; in a branch, return so that the memory learns from the branch."""
    said = request.messages[-1].text
    if "(branch br_" in said:
        seen = "key" if "Ann has the key" in said else "nothing"
        given = {"message": f"I began with {seen}.", "extract_memory": True}
        return calls(("return", "branch_return", given))
    if heard(request) == "note":
        return calls(("note", "memory_record", NOTE))
    if heard(request) == "search":
        return calls(("search", "memory_search", {"query": "locked door"}))
    if heard(request) == "branch":
        task = {"description": "Open the locked door", "prompt": "Find the key."}
        return calls(("create", "branch_create", task))
    return "Done."


@asynccontextmanager
async def application(banks: Banks) -> AsyncGenerator[httpx2.AsyncClient]:
    branches = BranchService(open_branch_store("memory:"), memory=BankMemory(banks))
    tools = [Folding(branches), *memory_tools(banks)]
    async with browsing(
        tools=tools, replies=MockModel(decide), memory=banks, authenticate=known
    ) as client:
        yield client


async def said(client: httpx2.AsyncClient, who: dict[str, str], text: str) -> str:
    """Return the conversation that ``who`` sees after saying ``text``."""
    client.headers.update(who)
    thread = f"{who['X-User']}-{text}"
    await run(client, message(text, thread=thread))
    shown: str = (await client.get(f"/threads/{thread}/tree")).text
    return shown


async def listed(client: httpx2.AsyncClient, who: dict[str, str], query: str = "") -> list[str]:
    client.headers.update(who)
    response = await client.get("/memories", params={"query": query} if query else {})
    return [each["title"] for each in response.json()]


async def test_a_note_of_one_user_reaches_no_other_user_of_an_application(
    store: MemoryStore,
) -> None:
    """This covers the model's tools, the notes injected into a branch, and the memory page."""
    async with application(ReasoningBank(store)) as client:
        assert "mem_" in await said(client, ANN, "note")
        assert "Ann has the key" not in await said(client, BO, "search")
        assert "Ann has the key" not in await said(client, BO, "branch")
        assert await listed(client, BO) == await listed(client, BO, "locked door") == []
        assert "Ann has the key" in await said(client, ANN, "search")
        assert "I began with key." in await said(client, ANN, "branch")
        assert await listed(client, ANN) == await listed(client, ANN, "locked door") == ["Locks"]


async def test_lessons_of_a_users_branch_belong_to_the_user(store: MemoryStore) -> None:
    async with application(ReasoningBank(store)) as client:
        await said(client, ANN, "branch")
        lesson = [{"title": "Keys", "description": "When it is locked", "content": "Ask Ann."}]
        model = ScriptedModel(
            [Reply(text='{"outcome": "success"}'), Reply(text=json.dumps(lesson))]
        )
        assert await Distiller(ReasoningBank(store), model).learn_next()
        assert await listed(client, ANN) == ["Keys"]
        assert await listed(client, BO) == []
    [learned] = await store.newest(Filter())
    assert learned.scope == Scope(level="user", name="ann")


async def test_users_share_notes_at_a_level_that_the_application_names(store: MemoryStore) -> None:
    """Here each user has a separate project, and all users share the team."""

    def bank_of(principal: str | None) -> ReasoningBank:
        return ReasoningBank(store, scopes=Scopes(project=f"of {principal}", team="all"))

    shared = ReasoningBank(store, scopes=Scopes(team="all"), writes=["team"])
    await shared.record(Draft(title="Doors", description="Locked doors", content="Knock."))
    async with application(bank_of) as client:
        await said(client, ANN, "note")
        assert await listed(client, ANN) == ["Locks", "Doors"]
        assert await listed(client, BO) == ["Doors"]
        begun = await said(client, BO, "branch")
        assert "Knock." in begun
        assert r"\"scope\": \"team\"" in begun, "an injected note says whose it is"
        assert "Ann has the key" not in begun


async def test_a_user_cannot_delete_a_shared_note(store: MemoryStore) -> None:
    """Only callers that may write the level may delete: the note would be gone for other users as well."""
    banks = ReasoningBank(store, scopes=Scopes(project="web"))
    shared = await banks.record(Draft(title="Doors", description="Locked", content="Knock."))
    async with application(banks) as client:
        client.headers.update(ANN)
        assert (await client.get(f"/memories/{shared.id}")).json()["writable"] is False
        refused = await client.delete(f"/memories/{shared.id}")
        assert refused.status_code == 403
        assert "may write: user" in refused.json()["error"]
        assert await listed(client, BO) == ["Doors"]


async def test_an_agents_tools_know_the_owner_of_the_conversation(store: MemoryStore) -> None:
    trees = open_tree_store("memory:")
    agent = Agent(trees, MockModel(decide), tools=memory_tools(ReasoningBank(store)))
    for number, owner in enumerate(("ann", None)):
        await trees.create_thread(Thread(f"t{number}", 1.0, owner=owner))
        await agent.say(f"t{number}", "note")
    scopes = [each.scope for each in await store.newest(Filter())]
    await trees.close()
    assert scopes == [Scope(), Scope(level="user", name="ann")]


# -- names and levels ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("a ", " a", "\ta", "a\x01", "a\x02", "a\u200bb", "a\u2060", "a\u202eb", "a\ud800"),
        *(
            "a\u034f",
            "a\u115f",
            "a\u180b",
            "a\u2800",
            "a\u3164",
            "a\ufe0f",
            "a\uffa0",
            "a\U000e0100",
        ),
        *("\xe4\u200d\xe4", "x" * 201),
    ],
    ids=ascii,
)
def test_a_name_that_equals_another_after_normalization_is_refused(name: str) -> None:
    for make in (
        lambda: Scopes(project=name),
        lambda: Scopes(user=name),
        lambda: Scope(level="org", name=name),
    ):
        with pytest.raises(ValidationError):
            make()


async def test_a_level_without_a_name_does_not_exist_for_a_user(store: MemoryStore) -> None:
    """Otherwise all applications and callers without a name for the level would share it."""
    bank = ReasoningBank(store)
    await bank.record(Draft(title="T", description="D", content="Of no one"))
    assert [each.scope for each in await bank.newest()] == [Scope()]
    assert await bank.of("ann").newest() == []
    with pytest.raises(LevelError, match=r"org.*may write: user"):
        await bank.of("ann").record(Draft(title="T", description="D", content="C"), level="org")


@pytest.mark.parametrize("level", ["project", "team", "org"])
async def test_a_caller_writes_only_the_narrowest_level_by_default(
    store: MemoryStore, level: Level
) -> None:
    scopes = Scopes(user="ann", project="web", team="site", org="acme")
    draft = Draft(title="T", description="D", content="C")
    narrow = ReasoningBank(store, scopes=scopes)
    assert (await narrow.record(draft)).scope.level == "user"
    with pytest.raises(LevelError, match=rf"{level}.*may write: user"):
        await narrow.record(draft, level=level)
    wide = ReasoningBank(store, scopes=scopes, writes=[level])
    assert (await wide.record(draft)).scope == Scope(level=level, name=getattr(scopes, level))
    with pytest.raises(LevelError, match=rf"user.*may write: {level}"):
        await wide.record(draft, level="user")
    none = ReasoningBank(store, scopes=scopes, writes=[])
    with pytest.raises(LevelError, match="may write: none"):
        await none.record(draft)


# -- votes -----------------------------------------------------------------------------------


async def test_a_caller_has_one_vote_on_a_note(store: MemoryStore) -> None:
    """The last vote counts; otherwise one caller would decide which notes other callers get."""
    banks = ReasoningBank(store, scopes=Scopes(project="web"))
    note = await banks.record(Draft(title="Doors", description="Locked", content="Knock."))
    votes = [await banks.of("ann").rate(note.id, helpful=False) for _ in range(20)]
    rated = votes[-1]
    assert (rated.helpful, rated.unhelpful) == (0, 1)
    rated = await banks.of("bo").rate(note.id, helpful=True)
    assert (rated.helpful, rated.unhelpful) == (1, 1)
    rated = await banks.of("ann").rate(note.id, helpful=True)
    assert (rated.helpful, rated.unhelpful) == (2, 0)
