"""Modules of plugins that show questions in the page: named, served, and given only exposed values."""

from pathlib import Path

import pytest

from anabranch import Accepted
from anabranch.chat import PluginAnswerer, make_plugin
from anabranch.messages import ElicitReply, ElicitRequest
from anabranch.testing import MockModel, calls
from examples.pick_card import CardChoice, PickCard
from tests.agents.harness import heard, set_up
from tests.agents.memory import MemoryTrees
from tests.chat.web import browsing, message, run

SOURCE = "export default async () => ({action: 'decline'});"
OTHER = SOURCE.replace("decline", "cancel")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "cards.mjs"
    file.write_text(SOURCE, encoding="utf-8")
    return file


async def test_a_question_names_its_module_which_is_served(module: Path) -> None:
    plugin = make_plugin(PickCard(), expose=("handoff.cards",)).on_page("card", module).build()
    replies = MockModel(lambda request: calls(("u", "pick_card", {"count": 2})))
    async with browsing(tools=[plugin], replies=replies) as client:
        await run(client, message("play"))
        [question] = (await client.get("/threads/t1/pending")).json()
        served = await client.get(f"/{question['module']}")
        unknown = await client.get("/modules/other.mjs")
    assert served.text == SOURCE
    assert served.headers["content-type"].startswith("text/javascript")
    assert unknown.status_code == 404
    assert (question["params"], question["handoff"].keys()) == ({}, {"cards"})


async def test_a_question_without_module_has_a_form() -> None:
    async with browsing() as client:
        await run(client, message("reserve"))
        [question] = (await client.get("/threads/t1/pending")).json()
    assert question["module"] is None


def test_a_module_with_other_source_has_another_name(module: Path) -> None:
    names: set[str] = set()
    for source in (SOURCE, OTHER):
        module.write_text(source, encoding="utf-8")
        server = make_plugin(PickCard()).on_page(PickCard.card, module).build().server
        names.add(server.modules["card"].name)
    assert len(names) == 2


async def test_in_the_process_a_question_with_a_module_alone_goes_to_the_other_answerer(
    module: Path,
) -> None:
    class Other(PluginAnswerer):
        async def elicit(self, question: object, /, *, step_id: str) -> ElicitReply:
            assert isinstance(question, ElicitRequest)
            return ElicitReply(action="accept", content={"cardNumber": 1})

    store, plugin = MemoryTrees(), make_plugin(PickCard()).on_page("card", module).build()
    setting = await set_up(
        lambda request: calls(("u", "pick_card", {})) if heard(request) == "go" else "ok",
        tools=plugin.server.tools,
        store=store,
        user=PluginAnswerer(store, [plugin], otherwise=Other(store, [])),
    )
    await setting.say("go")
    [node] = await setting.of_kind("results")
    assert '"picked":null' not in (await setting.results(node))["u"].replace(" ", "")


def test_a_module_and_a_handler_can_be_for_one_key(module: Path) -> None:
    async def first(request: object) -> Accepted[CardChoice]:
        return Accepted(CardChoice(cardNumber=1))

    plugin = make_plugin(PickCard()).on(PickCard.card, first).on_page("card", module).build()
    assert plugin.client.elicits.keys() == plugin.server.modules.keys() == {"card"}


def test_a_module_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.mjs': No such file"):
        make_plugin(PickCard()).on_page("card", str(tmp_path / "none.mjs")).build()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["card", "card"], "has two modules for card"),
        (["card", "seat"], "has modules for unknown keys seat"),
        (["seat"], "lacks handlers for card; has modules for unknown keys seat"),
    ],
    ids=["twice", "unknown", "lacking"],
)
def test_modules_are_for_the_keys_of_the_tool(module: Path, keys: list[str], said: str) -> None:
    builder = make_plugin(PickCard())
    for key in keys:
        builder.on_page(key, module)
    with pytest.raises(ValueError, match=said):
        builder.build()
