"""Deadlines hold in an idle process: the application that opens branches closes them in time."""

import pytest

from anabranch.agents import Agent, Folding
from anabranch.chat import make_chat_app
from anabranch.engines import Engine, InProcessEngine
from anabranch.messages import SampleRequest
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel
from tests.folding.watched import Watched


def quiet(request: SampleRequest) -> str:
    return "Nothing."


@pytest.mark.parametrize("works", [True, False], ids=["works", "leaves runs to workers"])
async def test_an_application_closes_branches_in_time(works: bool) -> None:
    watched = Watched()
    engine: Engine | None = None if works else InProcessEngine(watched.clock)
    store = open_tree_store("memory:")
    app = make_chat_app(
        store,
        MockModel(quiet),
        [Folding(watched.service)],
        clock=watched.clock,
        engine=engine,
        concurrency=10 if works else None,
        closes_store=True,
    )
    async with app.router.lifespan_context(app):
        await watched.ends()


async def test_looking_for_deadlines_writes_nothing() -> None:
    """Excludes a transaction that writes every second in a store in which nothing happens."""
    watched = Watched()
    for _ in range(30):
        await watched.service.expire()
        watched.clock.advance(1)
    assert watched.store.pruned == 1
    watched.clock.advance(60)
    await watched.service.expire()
    assert watched.store.pruned == 2


async def test_only_branches_with_deadlines_are_tended() -> None:
    plain = Agent(open_tree_store("memory:"), MockModel(quiet))
    assert list(plain.tools.tended()) == []
