"""Clients that show no questions: results list the questions, and ``answer_questions`` takes the
answers.
"""

import json
from datetime import date
from typing import Any, Literal

import pytest
from fastmcp import FastMCP
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.mcp import create_server, install_fastmcp
from anabranch.tool import Tool
from tests.diary import DONE, note
from tests.mcp.handles import HANDLE, answered, given, handle_in
from tests.mcp.harness import (
    CANCEL,
    ERAS,
    HANDSHAKE,
    KEY,
    MODERN,
    Answers,
    accept,
    call_once,
    connected,
    echo,
    http,
    serving,
    text_of,
)
from tests.sagas.harness import signed_in

STORES = [None, "memory:"]
pytestmark = pytest.mark.usefixtures("nothing_done")


class City(BaseModel):
    city: str = Field(max_length=20, description="Where to go")


class Stay(BaseModel):
    nights: int = Field(ge=1, le=30)
    board: Literal["none", "half", "full"] = "none"
    arrival: date | None = None


class Plan(BaseModel):
    text: str


CITY = Elicitation("city", City)


@tool(elicits=[CITY])
async def plan(ctx: BranchContext, who: str) -> str:
    """Ask two questions in turn, with an effect before each."""
    await ctx.step(note, "first", undo=lambda _: note("undone"))
    where = await ctx.elicit(CITY, f"Where to, {who}?")
    if not isinstance(where, Accepted):
        return f"no city ({where.action})"
    await ctx.step(note, "second")
    stay = await ctx.elicit(Stay, "How long?")
    if not isinstance(stay, Accepted):
        return f"no stay ({stay.action})"
    return f"{who}: {stay.content.nights} nights in {where.content.city}"


ROME = given("plan/city.1", city="Rome")
TWO = given("plan/elicit.1", nights=2)


def falling_back(*tools: Tool[Any], store: str | None = None, **options: Any) -> Any:
    return serving(*(tools or (plan,)), store=store, ask="fallback", **options)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("era", ERAS)
async def test_the_result_of_an_open_call_has_no_structured_content(
    era: str, store: str | None
) -> None:
    """The SDK's client compares each result with the tool's output schema."""
    async with connected(falling_back(store=store), era) as client:
        listed = {each.name: each.output_schema for each in (await client.list_tools()).tools}
        first = await client.call_tool("plan", {"who": "Ida"})
        second = await answered(client, handle_in(first), ROME)
        last = await answered(client, handle_in(second), TWO)
    assert not first.is_error
    asked = {"question": "plan/city.1", "message": "Where to, Ida?", "schema": CITY.schema}
    tool, handle = "answer_questions", handle_in(first)
    unfinished = {"tool": tool, "call": handle, "questions": [asked]}
    assert first.structured_content == {"unfinished": unfinished}
    assert second.structured_content is not None
    (again,) = second.structured_content["unfinished"]["questions"]
    assert (again["question"], again["message"]) == ("plan/elicit.1", "How long?")
    assert text_of(last) == "Ida: 2 nights in Rome"
    assert DONE == ["first", "second"]
    schema = listed["plan"]
    assert schema is not None
    validator: Any = Draft202012Validator(schema)
    fits = validator.is_valid
    assert fits({"result": "Rome"})
    assert fits(first.structured_content)
    both = {"result": "Rome", "unfinished": unfinished}
    neither_nor: list[Any] = [{}, both, {"unfinished": {}}]
    for neither in neither_nor:
        assert not fits(neither)
    assert listed["answer_questions"] is None


async def test_a_server_whose_calls_end_with_their_requests_lists_no_other_variant() -> None:
    async with connected(serving(plan), MODERN) as client:
        (listed,) = (await client.list_tools()).tools
    assert listed.output_schema is not None
    assert [*listed.output_schema["properties"]] == ["result"]
    assert listed.output_schema["required"] == ["result"]


async def test_the_result_lists_the_questions_in_words_and_as_a_schema() -> None:
    async with connected(falling_back(), MODERN) as client:
        first = await client.call_tool("plan", {"who": "Ida"})
        second = await answered(client, handle_in(first), ROME)
    text = text_of(first)
    assert text.startswith("plan is not done: it needs answers from the user. Ask the user each")
    assert "do not answer for the user" in text
    assert 'Question "plan/city.1": Where to, Ida?' in text
    assert "  - city: Where to go; text; at most 20 characters" in text
    schema = json.loads(text.rpartition("JSON Schema of the content: ")[2])
    assert schema == CITY.schema
    text = text_of(second)
    assert "  - nights: a whole number; 1 to 30" in text
    assert '  - board: one of: none, half, full; default "none"; optional' in text
    assert "  - arrival: a date (YYYY-MM-DD); optional" in text


@pytest.mark.parametrize("store", STORES)
async def test_an_unfitting_answer_is_asked_for_again_with_the_reason(store: str | None) -> None:
    async with connected(falling_back(store=store), MODERN) as client:
        first = await client.call_tool("plan", {"who": "Ida"})
        again = await answered(client, handle_in(first), given("plan/city.1", city="R" * 21))
        assert "The last answer did not fit: city: String should have at most 20" in text_of(again)
        fits = given("plan/city.1~2", city="Rome")
        second = await answered(client, handle_in(again), fits)
    assert "How long?" in text_of(second)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_the_user_may_decline_and_cancel(action: str) -> None:
    async with connected(falling_back(), HANDSHAKE) as client:
        first = await client.call_tool("plan", {"who": "Ida"})
        result = await answered(client, handle_in(first), given("plan/city.1", action))
    assert text_of(result) == f"no city ({action})"


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_shows_questions_is_asked_by_requests(era: str) -> None:
    answers = Answers(lambda p: accept(city="Rome") if "Where" in p.message else accept(nights=2))
    async with connected(falling_back(), era, answers) as client:
        result = await client.call_tool("plan", {"who": "Ida"})
    assert text_of(result) == "Ida: 2 nights in Rome"
    assert len(answers.asked) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_without_the_fallback_refuses_the_call(era: str) -> None:
    async with connected(serving(plan), era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["plan"]
        try:
            refused = text_of(await client.call_tool("plan", {"who": "Ida"}))
        except Exception as error:  # noqa: BLE001 - 2026-07-28 has an error for it
            refused = str(error)
    assert "'elicitation'" in refused


@pytest.mark.parametrize("era", ERAS)
async def test_questions_that_the_client_can_answer_go_to_the_client(era: str) -> None:
    @tool
    async def mixed(ctx: BranchContext) -> list[str]:
        """Ask the model and the user at the same time, then each again."""
        tip, where = await ctx.gather(ctx.sample("A tip?"), ctx.elicit(CITY, "Where?"))
        last = (await ctx.sample(f"After {tip.text}?")).text
        return [tip.text, where.action, last, (await ctx.elicit(Stay, "How long?")).action]

    answers = Answers(sample=echo)
    async with connected(falling_back(mixed), era, answers) as client:
        first = await client.call_tool("mixed")
        assert first.is_error  # the tool's schema has no place for a text
        second = await answered(client, handle_in(first), given("mixed/city.1", city="Rome"))
        last = await answered(client, handle_in(second), given("mixed/elicit.1", "decline"))
    assert json.loads(text_of(last)) == ["<A tip?>", "accept", "<After <A tip?>?>", "decline"]
    assert len(answers.prompted) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_several_questions_are_answered_together_or_in_part(era: str) -> None:
    @tool
    async def both(ctx: BranchContext) -> str:
        city, stay = await ctx.gather(ctx.elicit(CITY, "Where?"), ctx.elicit(Stay, "How long?"))
        return f"{city.action} {stay.action}"

    one, two = given("both/city.1", city="Rome"), given("both/elicit.1", "decline")
    async with connected(falling_back(both), era) as client:
        handle = handle_in(await client.call_tool("both"))
        assert text_of(await answered(client, handle, one, two)) == "accept decline"
        half = await answered(client, handle, two)
        assert "Where?" in text_of(half)
        assert "How long?" not in text_of(half)
        assert text_of(await answered(client, handle_in(half), one)) == "accept decline"


async def test_a_link_is_given_in_words() -> None:
    @tool
    async def pay(ctx: BranchContext) -> str:
        return (await ctx.elicit_url("Pay there", "https://pay.example/1")).action

    answers = Answers(
        lambda _: accept()
    )  # the client shows forms and, like every SDK client, links
    for era in ERAS:
        async with connected(falling_back(pay), era) as client:
            first = await client.call_tool("pay")
            assert "Pay there" in text_of(first)
            assert "https://pay.example/1" in text_of(first)
            result = await answered(client, handle_in(first), given("pay/url.1"))
        assert text_of(result) == "accept"
        async with connected(falling_back(pay), era, answers) as client:
            assert text_of(await client.call_tool("pay")) == "accept"


@pytest.mark.parametrize("era", ERAS)
async def test_with_a_store_each_answer_counts_once(era: str) -> None:
    async with connected(falling_back(store="memory:"), era) as client:
        first = await client.call_tool("plan", {"who": "Ida"})
        replies = [text_of(await answered(client, handle_in(first), ROME)) for _ in range(2)]
        other = await answered(client, handle_in(first), given("plan/city.1", city="Oslo"))
        assert other.is_error
        assert "its questions are answered" in text_of(other)
        second = handle_in(await answered(client, handle_in(first), ROME))
        for _ in range(2):
            assert text_of(await answered(client, second, TWO)) == "Ida: 2 nights in Rome"
    assert [HANDLE.sub("", reply) for reply in replies] == [HANDLE.sub("", replies[0])] * 2
    assert DONE == ["first", "second"]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("era", ERAS)
async def test_without_answers_the_questions_are_listed_again(era: str, store: str | None) -> None:
    async with connected(falling_back(store=store), era) as client:
        first = await client.call_tool("plan", {"who": "Ida"})
        again = await client.call_tool("answer_questions", {"call": handle_in(first)})
        assert "Where to, Ida?" in text_of(again)
        second = await answered(client, handle_in(again), ROME)
        assert "How long?" in text_of(second)
    assert DONE == ["first", "second"]


async def test_with_a_store_the_latest_questions_are_listed_and_a_handle_is_short() -> None:
    async with connected(falling_back(store="memory:"), MODERN) as client:
        first = await client.call_tool("plan", {"who": "Ida" * 1000})
        assert len(handle_in(first)) < 300
        await answered(client, handle_in(first), ROME)
        again = await client.call_tool("answer_questions", {"call": handle_in(first)})
    assert "How long?" in text_of(again)


async def test_an_answer_to_no_question_is_refused_by_name() -> None:
    wrong = {"unknown": [given("plan/elicit.9", city="Rome")], "twice": [ROME, ROME]}
    async with connected(falling_back(), MODERN) as client:
        handle = handle_in(await client.call_tool("plan", {"who": "Ida"}))
        for answers in wrong.values():
            result = await answered(client, handle, *answers)
            assert result.is_error
            assert "Give one answer to each of: 'plan/city.1'." in text_of(result)
        malformed = await answered(client, handle, {"question": "plan/city.1", "action": "yes"})
        assert "answers.0.action" in text_of(malformed)
    assert DONE == ["first"]


async def test_a_handle_opens_only_its_own_call() -> None:
    @tool
    async def other(ctx: BranchContext) -> str:
        return (await ctx.elicit(CITY, "Where?")).action

    servers = {
        "the same": falling_back(),
        "another name": create_server("else", [plan], keys=[KEY], ask="fallback"),
        "another key": falling_back(keys=["another secret of thirty-two bytes"]),
        "without the tool": falling_back(other),
    }
    async with connected(falling_back(), MODERN) as client:
        handle = handle_in(await client.call_tool("plan", {"who": "Ida"}))
    middle = len(handle) // 2
    handles = [
        handle,
        handle[:middle] + ("A" if handle[middle] != "A" else "B") + handle[middle + 1 :],
    ]
    for name, server in servers.items():
        for tried in handles:
            async with connected(server, MODERN) as client:
                result = await answered(client, tried, ROME)
            assert result.is_error is not (name == "the same" and tried == handle)
            if result.is_error:
                assert "This handle names no call that can continue" in text_of(result)
    assert DONE == ["first", "second"]


async def test_a_state_is_no_handle_and_a_handle_no_state() -> None:
    answers = Answers(lambda _: CANCEL)
    async with connected(falling_back(), MODERN, answers) as client:
        asked = await call_once(client, "plan", {"who": "Ida"})
        result = await answered(client, asked["requestState"], ROME)
        assert "This handle names no call" in text_of(result)
    async with connected(falling_back(), MODERN) as client:
        handle = handle_in(await client.call_tool("plan", {"who": "Ida"}))
        with pytest.raises(Exception, match="requestState"):
            await call_once(client, "plan", {"who": "Ida"}, state=handle, responses={})


async def test_a_client_that_shows_questions_can_continue_with_a_handle() -> None:
    """The call's first client may be another one: a new chain of rounds starts here."""
    for era in ERAS:
        async with connected(falling_back(), MODERN) as client:
            handle = handle_in(await client.call_tool("plan", {"who": "Ida"}))
        answers = Answers(lambda _: accept(nights=2))
        async with connected(falling_back(), era, answers) as client:
            assert text_of(await answered(client, handle, ROME)) == "Ida: 2 nights in Rome"


@pytest.mark.parametrize("store", STORES)
async def test_sessions_that_carry_no_questions_are_reached(store: str | None) -> None:
    """With several workers, no request of the server can reach the client."""
    answers = Answers(lambda _: accept(city="never"))
    async with (
        http(falling_back(store=store), stateless_http=True) as url,
        connected(url, HANDSHAKE, answers) as client,
    ):
        first = await client.call_tool("plan", {"who": "Ida"})
        second = await answered(client, handle_in(first), ROME)
        last = await answered(client, handle_in(second), TWO)
    assert text_of(last) == "Ida: 2 nights in Rome"
    assert answers.asked == []


@pytest.mark.parametrize("era", ERAS)
async def test_in_a_namespace_the_tools_are_named_as_the_client_sees_them(era: str) -> None:
    inner: FastMCP[Any] = FastMCP("inner")
    install_fastmcp(inner, plan, ask="fallback", keys=[KEY])
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(inner, namespace="in")
    below = outer._mcp_server
    async with connected(below, era) as client:
        first = await client.call_tool("in_plan", {"who": "Ida"})
        assert "call the tool in_answer_questions with" in text_of(first)
        arguments = {"call": handle_in(first), "answers": [ROME]}
        second = await client.call_tool("in_answer_questions", arguments)
        arguments = {"call": handle_in(second), "answers": [TWO]}
        last = await client.call_tool("in_answer_questions", arguments)
    assert text_of(last) == "Ida: 2 nights in Rome"


async def test_only_the_first_stop_of_a_result_with_a_schema_is_an_error() -> None:
    """``continue_call`` has no schema: a host that repeats a failed call would get a refusal."""

    @tool
    async def typed(ctx: BranchContext) -> Plan:
        """Ask twice, and return an object."""
        where = await ctx.elicit(CITY, "Where?", key="one")
        return Plan(text=where.action + (await ctx.elicit(CITY, "And then?", key="two")).action)

    for era in ERAS:
        async with connected(falling_back(typed), era) as client:
            first = await client.call_tool("typed")
            second = await answered(client, handle_in(first), given("one", "decline"))
            listed = await answered(client, handle_in(second))
            assert [each.is_error for each in (first, second, listed)] == [True, False, False]
            assert second.structured_content["unfinished"]["tool"] == "answer_questions"


async def test_a_tool_name_with_our_ending_is_no_namespace() -> None:
    @tool
    async def questions(ctx: BranchContext) -> str:
        where = await ctx.elicit(CITY, "Where?", key="one")
        return where.action + (await ctx.elicit(CITY, "And then?", key="two")).action

    async with connected(falling_back(questions), MODERN) as client:
        first = await client.call_tool("questions")
        second = await answered(client, handle_in(first), given("one", "decline"))
        assert second.structured_content["unfinished"]["tool"] == "answer_questions"


def test_an_unknown_way_of_asking_is_refused() -> None:
    ask: Any = "link"
    with pytest.raises(ValueError, match="ask must be 'client' or 'fallback'"):
        create_server("test", [plan], ask=ask)


@pytest.mark.parametrize("store", STORES)
async def test_only_the_principal_of_a_call_answers_it(store: str | None) -> None:
    """Another user of the server cannot use a handle, even after seeing the handle."""
    server = falling_back(store=store)
    with signed_in("ida"):
        async with connected(server, MODERN) as client:
            handle = handle_in(await client.call_tool("plan", {"who": "Ida"}))
    unknown = "no call at all"
    with signed_in("eve"):
        async with connected(server, MODERN) as client:
            refused = [await answered(client, each, ROME) for each in (handle, unknown)]
            listed = await answered(client, handle)
    assert all(result.is_error for result in (*refused, listed))
    assert len({text_of(result) for result in (*refused, listed)}) == 1
    assert "Where to" not in text_of(listed)
    assert DONE == ["first"]
    with signed_in("ida"):
        async with connected(server, MODERN) as client:
            second = await answered(client, handle, ROME)
            assert "How long?" in text_of(second)
    assert DONE == ["first", "second"]
