"""With two users in one chat application, no route shows or changes the other user's data, whatever the id."""

from collections.abc import Callable

import pytest

from anabranch.memory import ReasoningBank
from anabranch.stores import open_tree_store
from anabranch.tree import TreeStore
from tests.chat.saboteurs import forget_the_owner
from tests.owners.attack import Attack
from tests.owners.rows import rows_about, rows_of
from tests.owners.users import ids_of
from tests.owners.web import MOUNTED
from tests.owners.web_story import TwoUsers


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True, scope="module")
async def test_no_route_shows_or_changes_data_of_another_user(here: TwoUsers) -> None:
    """Try every route with ids in every place; afterwards the owner continues undisturbed."""
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
async def test_the_attack_finds_a_missing_check_of_the_owner(
    sabotage: Callable[[pytest.MonkeyPatch], None],
    route: str,
    said: str,
    here: TwoUsers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method, path = route.split(" ", 1)
    ids = ids_of(here.ann, here.bo.uses)
    sabotage(monkeypatch)
    attack = Attack(here.web, here.ann, here.bo, ids)
    found = await attack.run([f"{method} {MOUNTED}{path}"])
    assert said in "\n".join(found)
