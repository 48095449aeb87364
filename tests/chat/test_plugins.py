"""Plugins: a tool and the handlers of its questions, checked at construction, asked in the application."""

import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, Cancelled, Declined, Elicitation, ElicitResult
from anabranch.chat import ElicitId, Plugin, PluginAnswerer, PluginRequest, make_plugin
from anabranch.mcp import create_server
from anabranch.messages import ElicitReply
from anabranch.testing import MockClient, calls, run_tool
from anabranch.tool import HandoffTool, tool
from tests.agents.harness import Answering, Setting, heard, set_up
from tests.agents.memory import MemoryTrees


class Card(BaseModel):
    number: int = Field(alias="cardNumber", ge=1, le=3)


class Sure(BaseModel):
    ok: bool


class Hand(BaseModel):
    cards: list[str]
    secret: str


class PickCard(HandoffTool):
    """Pick a card."""

    card = Elicitation("card", Card)
    sure = Elicitation("sure", Sure)

    async def before(self, *, count: int = 3) -> Hand:
        return Hand(cards=["A", "B", "C"][:count], secret="B")

    async def client(self, hand: Hand, ctx: BranchContext) -> str:
        answer = await ctx.elicit(self.card, "Which?", context={"colour": "red"})
        if not isinstance(answer, Accepted):
            return answer.action
        sure = await ctx.elicit(self.sure, "Sure?")
        return f"{hand.cards[answer.content.number - 1]} {sure.action}"

    async def after(self, hand: Hand, picked: str) -> str:
        return f"{picked}, not {hand.secret}"


PICK_CARD = PickCard()
CONFIRM = Elicitation("sure", Sure)


@tool(elicits=[CONFIRM])
async def book(ctx: BranchContext, place: str) -> str:
    answer = await ctx.elicit(CONFIRM, f"Book {place}?")
    return f"{place}: {answer.action}"


@tool
async def silent(ctx: BranchContext) -> str:
    return "done"


class Shown:
    """A handler that records its requests and returns one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[PluginRequest[Any]] = []

    async def __call__(self, request: PluginRequest[Any]) -> Any:
        self.requests.append(request)
        return self.answer


async def asked(
    plugins: list[Plugin[Any]], *uses: tuple[str, str, dict[str, Any]], **options: Any
) -> dict[str, str]:
    """Let a model use the plugins' tools; return their results."""
    store = MemoryTrees()
    setting = await set_up(
        lambda request: calls(*uses) if heard(request) == "go" else "ok",
        tools=[tool for plugin in plugins for tool in plugin.server.tools],
        store=store,
        user=PluginAnswerer(store, plugins, **options),
    )
    return await results_of(setting)


async def results_of(setting: Setting) -> dict[str, str]:
    await setting.say("go")
    [node] = await setting.of_kind("results")
    return await setting.results(node)


async def test_a_handler_answers_its_question_in_the_application() -> None:
    card, sure = Shown(Accepted(Card(cardNumber=2))), Shown(Declined())
    plugin = make_plugin(PICK_CARD).on_elicit({PickCard.card: card, "sure": sure}).build()
    results = await asked([plugin], ("u", "pick_card", {}))
    assert results == {"u": "B decline, not B"}
    [first], [second] = card.requests, sure.requests
    assert (first.tool_name, first.key, first.seq) == ("pick_card", "card", 0)
    assert (second.key, second.seq, second.call_id) == ("sure", 1, first.call_id)
    assert (first.message, first.model, first.context) == ("Which?", Card, {"colour": "red"})
    assert first.schema == PickCard.card.schema


async def test_a_handler_may_be_a_plain_function_which_holds_nothing_up() -> None:
    asked_in: list[int] = []

    def card(request: PluginRequest[Any]) -> ElicitResult[Any]:
        asked_in.append(threading.get_ident())
        return Accepted(Card(cardNumber=2))

    def sure(_: PluginRequest[Any]) -> ElicitResult[Any]:
        return Declined()

    handlers: dict[Any, Any] = {"card": card, "sure": sure}
    results = await asked([Plugin(PICK_CARD, handlers)], ("u", "pick_card", {}))
    assert results == {"u": "B decline, not B"}
    assert asked_in != [threading.get_ident()]


async def test_a_question_that_is_asked_again_has_another_id() -> None:
    card = Shown(Accepted(Card.model_construct(number=1)))
    answers: list[ElicitResult[Card]] = [Accepted(Card.model_construct(number=1)), Cancelled()]
    fits = iter(answers)

    @tool(elicits=[PickCard.card])
    async def twice(ctx: BranchContext) -> str:
        await ctx.elicit(PickCard.card, "Which?")
        return (await ctx.elicit(PickCard.card, "Which?")).action

    async def handler(request: PluginRequest[Card]) -> ElicitResult[Card]:
        await card(request)
        return next(fits)

    plugin = make_plugin(twice).on(PickCard.card, handler).build()
    results = await asked([plugin], ("u", "twice", {}))
    assert results == {"u": "cancel"}
    assert [request.id.seq for request in card.requests] == [0, 1]


async def test_only_parameters_are_exposed_where_nothing_else_is_named() -> None:
    card = Shown(Cancelled())
    plugin = Plugin(PICK_CARD, {"card": card, "sure": card})
    await asked([plugin], ("u", "pick_card", {"count": 2}))
    assert (card.requests[0].params, card.requests[0].handoff) == ({"count": 2}, None)


async def test_defaults_are_among_the_parameters() -> None:
    card = Shown(Cancelled())
    await asked([Plugin(PICK_CARD, {"card": card, "sure": card})], ("u", "pick_card", {}))
    assert card.requests[0].params == {"count": 3}


@pytest.mark.parametrize(
    ("expose", "params", "handoff"),
    [
        (["params", "handoff.cards"], {"count": 3}, {"cards": ["A", "B", "C"]}),
        (["handoff.cards"], {}, {"cards": ["A", "B", "C"]}),
        (["handoff"], {}, {"cards": ["A", "B", "C"], "secret": "B"}),
        (["handoff", "handoff.cards"], {}, {"cards": ["A", "B", "C"], "secret": "B"}),
        (["handoff.cards", "handoff"], {}, {"cards": ["A", "B", "C"], "secret": "B"}),
        (["handoff.cards.deep", "handoff.nothing"], {}, {}),
        ([], {}, None),
    ],
)
async def test_named_tools_are_exposed(
    expose: list[str], params: dict[str, Any], handoff: Any
) -> None:
    card = Shown(Cancelled())
    plugin = make_plugin(PICK_CARD, expose=expose).on_elicit({"card": card, "sure": card}).build()
    await asked([plugin], ("u", "pick_card", {}))
    assert (card.requests[0].params, card.requests[0].handoff) == (params, handoff)


@pytest.mark.parametrize("path", ["secret", "", "handoff.", ".cards", "journal.entries"])
def test_an_unknown_value_cannot_be_exposed(path: str) -> None:
    with pytest.raises(ValueError, match="Write params, handoff"):
        make_plugin(PICK_CARD, expose=[path]).on_elicit({"card": Shown(1)}).build()


@pytest.mark.parametrize("path", ["params.typo", "params.typo.deep"])
def test_an_unknown_parameter_cannot_be_exposed(path: str) -> None:
    with pytest.raises(ValueError, match=f"'{path}': tool 'pick_card' has the parameters count"):
        Plugin(PICK_CARD, {"card": Shown(1), "sure": Shown(1)}, expose=["params.count", path])


def test_a_function_has_no_handoff() -> None:
    with pytest.raises(ValueError, match="'book' is not a HandoffTool and has no handoff"):
        Plugin(book, {CONFIRM: Shown(1)}, expose=["handoff.cards"])


async def test_two_plugins_with_one_key_never_meet() -> None:
    first, second = Shown(Accepted(Sure(ok=True))), Shown(Declined())
    card = Shown(Accepted(Card(cardNumber=1)))
    plugins: list[Plugin[Any]] = [
        make_plugin(book).on(CONFIRM, first).build(),
        make_plugin(PICK_CARD).on(PickCard.card, card).on(PickCard.sure, second).build(),
    ]
    results = await asked(plugins, ("a", "book", {"place": "Rome"}), ("b", "pick_card", {}))
    assert results == {"a": "Rome: accept", "b": "A decline, not B"}
    assert [request.tool_name for request in first.requests] == ["book"]
    assert [request.tool_name for request in second.requests] == ["pick_card"]


@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        ({"card": 1}, "lacks handlers for sure"),
        ({"card": 1, "sure": 1, "x": 1, "y": 1}, "has handlers for unknown keys x, y"),
        ({"card": 1, PickCard.card: 1, "sure": 1}, "has two handlers for card"),
        (
            {PickCard.card: 1, CONFIRM: 1},
            "'pick_card' declares a different elicitation under the key 'sure'",
        ),
    ],
)
def test_an_incomplete_plugin_is_refused(handlers: dict[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_plugin(PICK_CARD).on_elicit(handlers).build()
    with pytest.raises(ValueError, match=message):
        Plugin(PICK_CARD, handlers)


def test_a_refused_plugin_lists_every_fault() -> None:
    with pytest.raises(ValueError, match=r"lacks handlers for sure; .* unknown keys x\. Give one"):
        Plugin(PICK_CARD, {"card": Shown(1), "x": Shown(1)})


def test_a_tool_without_elicitations_is_no_plugin() -> None:
    with pytest.raises(ValueError, match="'silent' declares no elicitations"):
        make_plugin(silent).build()


def test_two_plugins_for_one_tool_are_refused() -> None:
    plugin = Plugin(book, {CONFIRM: Shown(1)})
    with pytest.raises(ValueError, match="Two plugins are for a tool called 'book'"):
        PluginAnswerer(MemoryTrees(), [plugin, plugin])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (True, "returned bool. Return Accepted"),
        (None, "returned NoneType. Return Accepted"),
        (Accepted(Card(cardNumber=1)), "accepted with Card, which is not a Sure"),
        (Accepted({"ok": "perhaps"}), "accepted with dict, which is not a Sure: ok"),
    ],
)
async def test_the_return_value_of_a_handler_is_checked(answer: object, message: str) -> None:
    plugin = Plugin(book, {CONFIRM: Shown(answer)})
    name = ElicitId(tool_name="book", key="sure", call_id="call_1", seq=0)
    request = PluginRequest(name, "Sure?", Sure, CONFIRM.schema, {})
    with pytest.raises(TypeError, match=message):
        await plugin.client.answer(request)


async def test_content_that_fits_is_accepted_as_plain_data() -> None:
    plugin = Plugin(book, {CONFIRM: Shown(Accepted({"ok": True}))})
    results = await asked([plugin], ("u", "book", {"place": "Rome"}))
    assert results == {"u": "Rome: accept"}


async def test_a_question_without_plugin_goes_to_the_other_answerer() -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        """Ask an undeclared question."""
        return (await ctx.elicit(Sure, "Well?")).action

    store = MemoryTrees()
    plugin = Plugin(book, {CONFIRM: Shown(Declined())})
    otherwise = Answering(lambda question: ElicitReply(action="cancel"))
    setting = await set_up(
        lambda request: calls(("u", "ask", {})) if heard(request) == "go" else "ok",
        tools=[ask, *plugin.server.tools],
        store=store,
        user=PluginAnswerer(store, [plugin], otherwise=otherwise),
    )
    assert await results_of(setting) == {"u": "cancel"}


async def test_the_same_tool_serves_a_test_and_an_mcp_server() -> None:
    plugin = Plugin(book, {CONFIRM: Shown(Declined())})
    client = MockClient(elicits=[{"ok": True}])
    assert await run_tool(plugin.mcp, {"place": "Oslo"}, client) == "Oslo: accept"
    server = create_server("books", [plugin.mcp], keys=["k" * 32])
    assert [each.name for each in await server.list_tools()] == ["book"]
