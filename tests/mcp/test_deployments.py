"""Deployments while calls wait: every edge asks open questions again in their new words."""

from typing import Any

import pytest
from mcp import Client

from anabranch import BranchContext, tool
from anabranch.stores import CallStore
from anabranch.tool import Tool
from tests.diary import DONE
from tests.durable.stores import Modelled
from tests.mcp.handles import answered, given, handle_in
from tests.mcp.harness import ERAS, MODERN, Answers, call_once, connected, serving, text_of
from tests.sagas.harness import Number, accepted, call_saga, resume_saga, said

CHANGED = "\n\n(The last answer did not fit: the question was changed after it had been shown.)"
pytestmark = pytest.mark.usefixtures("nothing_done")


@pytest.fixture(params=["without a store", "with a store"])
def store(request: pytest.FixtureRequest) -> CallStore | None:
    return Modelled() if request.param == "with a store" else None


def reserve() -> None:
    DONE.append("reserved")


def booking(words: str) -> Tool[Any]:
    """Return the tool of a version that asks in these words."""

    @tool(name="book")
    async def book(ctx: BranchContext) -> list[str]:
        """Ask three questions at the same time, one of them in a branch; one question stays the same."""

        async def inside(branch: BranchContext) -> str:
            await branch.step(reserve)
            return (await branch.elicit_url(f"{words} pay?", "https://example.org")).action

        number, page, advice, same = await ctx.gather(
            ctx.elicit(Number, f"{words} how many?"),
            ctx.branch(inside),
            ctx.sample(f"{words} advice?"),
            ctx.elicit(Number, "same?"),
        )
        return [number.action, page, advice.text, same.action]

    return book


FORM, PAGE, MODEL = "book/elicit.1", "book/inside#1/url.1", "book/sample.1"
SAME = "book/elicit.2"
ANSWERS = Answers(lambda _: None, lambda _: None)


def server(words: str, store: CallStore | None) -> Any:
    """Return a server of one version. The version has no name: words may come from a template."""
    return serving(booking(words), store=store, code_version="1" if store else None)


def responses(*step_ids: str) -> dict[str, Any]:
    reply = {"role": "assistant", "content": {"type": "text", "text": "take it"}, "model": "m"}
    accept: dict[str, Any] = {"action": "accept", "content": {"n": 1}}
    kinds = {"url": {"action": "accept"}, "sample": reply}
    return {step: kinds.get(step.rpartition("/")[2].partition(".")[0], accept) for step in step_ids}


def texts(reply: dict[str, Any]) -> dict[str, str]:
    asked: dict[str, str] = {}
    for step_id, request in reply["inputRequests"].items():
        params = request["params"]
        asked[step_id] = params.get("message") or params["messages"][-1]["content"]["text"]
    return asked


async def request(
    words: str, store: CallStore | None, first: dict[str, Any], *step_ids: str
) -> dict[str, Any]:
    """Send a request to the server of the version that asks in these words."""
    async with connected(server(words, store), MODERN, ANSWERS) as client:
        return await call_once(
            client, "book", state=first["requestState"], responses=responses(*step_ids)
        )


async def first_reply(words: str, store: CallStore | None) -> dict[str, Any]:
    async with connected(server(words, store), MODERN, ANSWERS) as client:
        return await call_once(client, "book")


async def test_answers_to_old_words_are_refused_with_the_reason(store: CallStore | None) -> None:
    first = await first_reply("Old", store)
    replies = [await request("New", store, first, FORM, PAGE, MODEL, SAME) for _ in range(2)]
    assert texts(replies[0]) == {
        f"{FORM}~2": f"New how many?{CHANGED}",
        f"{PAGE}~2": f"New pay?{CHANGED}",
        f"{MODEL}~2": "New advice?",
    }
    assert texts(replies[1]) == texts(replies[0])
    again = [f"{step_id}~2" for step_id in (FORM, PAGE, MODEL)]
    last = await request("New", store, replies[1], *again)
    assert last["structuredContent"] == {"result": ["accept", "accept", "take it", "accept"]}
    assert DONE == ["reserved"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_saga_step_is_refused_and_asked_again(era: str, store: CallStore | None) -> None:
    page = {"stepId": PAGE, "result": {"action": "accept"}}
    completed = [accepted(FORM, n=1), page, said(MODEL, "take it"), accepted(SAME, n=1)]
    async with connected(server("Old", store), era, ANSWERS) as old:
        token = (await call_saga(old, "book", {}))["sagaToken"]
    async with connected(server("New", store), era, ANSWERS) as new:
        again = await resume_saga(new, token, *completed)
        steps = {step["stepId"]: step["params"] for step in again["steps"]}
        assert list(steps) == [f"{FORM}~2", f"{PAGE}~2", f"{MODEL}~2"]
        assert steps[f"{FORM}~2"]["message"] == f"New how many?{CHANGED}"
        completed += [
            accepted(f"{FORM}~2", n=2),
            {**page, "stepId": f"{PAGE}~2"},
            said(f"{MODEL}~2", "leave it"),
        ]
        ended = await resume_saga(new, again["sagaToken"], *completed)
    assert ended["structuredContent"] == {"result": ["accept", "accept", "leave it", "accept"]}
    assert DONE == ["reserved"]


@pytest.mark.parametrize("era", ERAS)
async def test_answers_in_a_conversation_are_refused_and_the_question_listed_again(
    era: str, store: CallStore | None
) -> None:
    def version(words: str) -> Any:
        @tool(name="book")
        async def book(ctx: BranchContext) -> str:
            return (await ctx.elicit(Number, words)).action

        return serving(book, store=store, ask="fallback", code_version="1" if store else None)

    async def answer(client: Client, reply: Any, question: str) -> Any:
        return await answered(client, handle_in(reply), given(question, n=1))

    async with connected(version("How many?"), era) as old:
        first = await old.call_tool("book")
    async with connected(version("How few?"), era) as new:
        again = await answer(new, first, FORM)
        assert "How few?" in text_of(again)
        assert "the question was changed after it had been shown" in text_of(again)
        assert text_of(await answer(new, again, f"{FORM}~2")) == "accept"
