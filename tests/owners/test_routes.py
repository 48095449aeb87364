"""Two people in one chat application: nothing of one reaches the other, by no route and no id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.routes import Routes
from anabranch.memory import ReasoningBank
from anabranch.stores._trees import Trees
from tests.owners.attack import Attack
from tests.owners.people import ids_of
from tests.owners.rows import rows_about, rows_of
from tests.owners.web import MOUNTED
from tests.owners.web_story import two_people


async def test_nothing_of_one_person_reaches_another_by_a_route(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every route, with every kind of id, in every place; then the owner goes on."""
    async with two_people(url, tmp_path, monkeypatch) as here:
        ann, ids = here.ann, ids_of(here.ann, here.bo.uses)
        before, seen = rows_about(rows_of(url), [ann.word]), await here.story.everything()
        found = await Attack(here.web, ann, here.bo, ids).run()
        assert not found, "\n".join(found)
        after = rows_of(url)
        assert not (gone := before - after), f"changed: {gone}"
        assert not (new := rows_about(after, [ann.word]) - before), f"stored again: {new}"
        assert await here.story.everything() == seen
        here.gates.closed[ann.word].set()
        await here.story.go_on()


def forget_the_owner(patch: pytest.MonkeyPatch) -> None:
    async def find(self: Conversations, thread_id: str, principal: str | None) -> object:
        thread = await self.agent.store.thread(thread_id)
        return None if thread is None else self._in(thread)  # pyright: ignore[reportPrivateUsage]

    patch.setattr(Conversations, "find", find)


def list_all(patch: pytest.MonkeyPatch) -> None:
    async def threads_of(self: Trees, owner: str | None, limit: int) -> object:
        return await self.threads(limit)

    patch.setattr(Trees, "threads_of", threads_of)


def share_memory(patch: pytest.MonkeyPatch) -> None:
    of = ReasoningBank.of

    def anns(self: ReasoningBank, principal: str | None) -> ReasoningBank:
        return of(self, "ann")

    patch.setattr(ReasoningBank, "of", anns)


@pytest.mark.parametrize(
    ("sabotage", "route", "said"),
    [
        (forget_the_owner, "GET /threads/{id}/tree", "shows 'heron' of ann"),
        (forget_the_owner, "POST /threads/{id}/stop", "that this one exists"),
        (list_all, "GET /threads", "shows 'heron' of ann"),
        (share_memory, "GET /memories/{id}", "shows 'heron' of ann"),
    ],
    ids=["tree", "stop", "list", "memory"],
)
async def test_without_one_check_of_the_owner_it_is_found(
    sabotage: Callable[[pytest.MonkeyPatch], None],
    route: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method, path = route.split(" ", 1)
    async with two_people(f"sqlite:///{tmp_path}/chat.db", tmp_path, monkeypatch) as here:
        ids = ids_of(here.ann, here.bo.uses)
        sabotage(monkeypatch)
        attack = Attack(here.web, here.ann, here.bo, ids)
        found = await attack.run([f"{method} {MOUNTED}{path}"])
        assert said in "\n".join(found)
        here.gates.closed[here.ann.word].set()


async def test_a_route_that_is_new_is_driven_or_fails_with_what_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of which all parameters are known is driven as it is; another says what it lacks."""
    begin = Routes.__init__

    async def costs(request: Request) -> Response:
        """Forgets to look whose the thread is."""
        return JSONResponse({"thread": request.path_params["id"], "said": "heron"})

    async def more(request: Request) -> Response:
        wanted = request.query_params.get("budget")
        return JSONResponse({"budget": wanted}, 200 if wanted else 422)

    def extended(self: Routes, conversations: Conversations) -> None:
        begin(self, conversations)
        self.routes += [Route("/threads/{id}/costs", costs)]

    monkeypatch.setattr(Routes, "__init__", extended)
    async with two_people(f"sqlite:///{tmp_path}/chat.db", tmp_path, monkeypatch) as here:
        attack = Attack(here.web, here.ann, here.bo, ids_of(here.ann, here.bo.uses))
        found = await attack.run([f"GET {MOUNTED}/threads/{{id}}/costs"])
        assert "shows 'heron' of ann" in found[0]
        here.gates.closed[here.ann.word].set()

    def unknown(self: Routes, conversations: Conversations) -> None:
        begin(self, conversations)
        self.routes += [Route("/budgets", more)]

    monkeypatch.setattr(Routes, "__init__", unknown)
    with pytest.raises(AssertionError, match=r"GET /chat/budgets is new here, .* Let tests/owners"):
        async with two_people(f"sqlite:///{tmp_path}/other.db", tmp_path, monkeypatch):
            pytest.fail("a route that is not driven goes unnoticed")
