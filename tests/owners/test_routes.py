"""Two people in one chat application: nothing of one reaches the other, by no route and no id."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from anabranch.memory import ReasoningBank
from anabranch.stores import open_tree_store
from anabranch.tree import TreeStore
from tests.chat.saboteurs import forget_the_owner
from tests.owners.attack import Attack, use_the_rest
from tests.owners.people import ids_of
from tests.owners.rows import rows_about, rows_of
from tests.owners.web import MOUNTED
from tests.owners.web_story import STORY, TwoPeople


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True, scope="module")
async def test_nothing_of_one_person_reaches_another_by_a_route(here: TwoPeople) -> None:
    """Every route, with ids in every place; then the owner goes on."""
    ann, ids = here.ann, ids_of(here.ann, here.bo.uses)
    before, seen = rows_about(rows_of(here.url), [ann.word]), await here.story.everything()
    found = await Attack(here.web, ann, here.bo, ids).run()
    assert not found, "\n".join(found)
    after = rows_of(here.url)
    assert not (gone := before - after), f"changed: {gone}"
    assert not (new := rows_about(after, [ann.word]) - before), f"stored again: {new}"
    assert await here.story.everything() == seen
    here.gates.closed[ann.word].set()
    await here.story.resume()


def list_all(patch: pytest.MonkeyPatch) -> None:
    async def threads_of(self: TreeStore, owner: str | None, limit: int) -> object:
        return await self.threads(limit)

    patch.setattr(type(open_tree_store("memory:")), "threads_of", threads_of)


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
    here: TwoPeople,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method, path = route.split(" ", 1)
    ids = ids_of(here.ann, here.bo.uses)
    sabotage(monkeypatch)
    attack = Attack(here.web, here.ann, here.bo, ids)
    found = await attack.run([f"{method} {MOUNTED}{path}"])
    assert said in "\n".join(found)


async def costs(request: Request) -> Response:
    """Forgets to look whose the thread is."""
    return JSONResponse({"thread": request.path_params["id"], "said": "heron"})


async def budgets(request: Request) -> Response:
    """Needs a parameter that no one knows of."""
    wanted = request.query_params.get("budget")
    return JSONResponse({"budget": wanted}, 200 if wanted else 422)


async def test_a_new_route_is_driven_or_fails_with_the_line_to_add(here: TwoPeople) -> None:
    """One of which all parameters are known is driven as it is; another says what it lacks."""
    [mounted] = here.web.app.routes
    assert isinstance(mounted, Mount)
    routes = mounted.routes
    routes.insert(0, Route("/threads/{id}/costs", costs))
    for each in (here.bo, here.ann):
        await use_the_rest(here.web, each, STORY)
    attack = Attack(here.web, here.ann, here.bo, ids_of(here.ann, here.bo.uses))
    found = await attack.run([f"GET {MOUNTED}/threads/{{id}}/costs"])
    assert "shows 'heron' of ann" in found[0]
    routes.insert(0, Route("/budgets", budgets))
    with pytest.raises(AssertionError, match=r"GET /chat/budgets is new here, .* Let tests/owners"):
        await use_the_rest(here.web, here.bo, STORY)
