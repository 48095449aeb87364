"""The pages of questions: the form shown, the answers accepted, and the requests refused."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import date, datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
import mcp_types as types
import pytest
from fastmcp import FastMCP
from mcp import Client
from pydantic import AnyUrl, BaseModel, EmailStr, Field

from anabranch import Accepted, BranchContext, tool
from anabranch._asking import form_schema
from anabranch._schemas import Form
from anabranch.mcp import create_server, install, install_fastmcp
from anabranch.mcp._ask_page import read_form
from anabranch.stores import open_store
from anabranch.testing import ManualClock
from anabranch.tool import Tool
from tests.durable.stores import Modelled, Watched
from tests.mcp.handles import HANDLE
from tests.mcp.harness import (
    ERAS,
    HANDSHAKE,
    KEY,
    MODERN,
    Answers,
    accept,
    asgi,
    connected,
    meddling,
    serving,
    text_of,
)
from tests.patience import PATIENCE

URL = "https://tools.example.org"
ORIGIN = {"Origin": URL}
LINK = re.compile(r"(/ask/\S+)")


class Everything(BaseModel):
    """A form with a field of every kind."""

    name: str = Field(title="Your name", min_length=2, max_length=20, description="As on the card")
    email: EmailStr | None = None
    page: AnyUrl | None = None
    born: date | None = None
    meeting: datetime | None = None
    seat: Literal["aisle", "window"] = "window"
    extras: list[Literal["meal", "bag"]] = Field(default=["meal"], max_length=2)
    nights: int = Field(ge=1, le=30)
    budget: float | None = Field(default=None, gt=0)
    agree: bool
    mail: bool = False
    code: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "ABC"


class City(BaseModel):
    city: str


@tool
async def fill(ctx: BranchContext) -> str:
    answer = await ctx.elicit(Everything, 'All <b>about</b> you & "yours"\u202e?')
    return answer.content.model_dump_json() if isinstance(answer, Accepted) else answer.action


@tool
async def two(ctx: BranchContext) -> str:
    """Ask two questions at the same time, then a third."""
    first, second = await ctx.gather(ctx.elicit(City, "From?"), ctx.elicit(City, "To?"))
    third = await ctx.elicit(City, "Via?")
    return " ".join(
        each.content.city if isinstance(each, Accepted) else each.action
        for each in (first, second, third)
    )


def linking(*tools: Tool[Any], **options: Any) -> Any:
    given = {"store": "memory:", "ask": "fallback", "ask_url": URL, **options}
    return serving(*(tools or (fill, two)), **given)


class Pages:
    """A browser, and a client that shows no questions, of one server."""

    def __init__(self, client: Client, browser: httpx2.AsyncClient) -> None:
        self.client = client
        self.browser = browser
        self.text = ""

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        self.text = text_of(await self.client.call_tool(name, dict(arguments or {})))
        return self.text

    async def resume(self, *answers: dict[str, Any]) -> str:
        found = HANDLE.search(self.text)
        assert found is not None, self.text
        arguments = {"call": found[1], "answers": [*answers]} if answers else {"call": found[1]}
        return await self.call("answer_questions", arguments)

    def links(self) -> list[str]:
        return LINK.findall(self.text)

    async def send(self, link: str, headers: Mapping[str, str] = ORIGIN, **fields: Any) -> Any:
        action = fields.pop("action", "accept")
        data = {"action": action, **{f"field:{name}": fields[name] for name in fields}}
        return await self.browser.post(link, data=data, headers=headers)


@asynccontextmanager
async def visiting(server: Any, era: str = MODERN, **options: Any) -> AsyncGenerator[Pages, None]:
    async with (
        asgi(server.streamable_http_app()) as url,
        connected(url, era, **options) as client,
        httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=PATIENCE) as browser,
    ):
        yield Pages(client, browser)


GOOD: dict[str, Any] = {"name": "Ida", "nights": "3", "agree": "yes", "extras": ["bag"]}


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_continues_when_its_user_answers_on_a_page(era: str) -> None:
    async with visiting(linking(), era) as pages:
        text = await pages.call("fill")
        assert f"Or give the user this link to a page with the form: {URL}/ask/" in text
        assert "once the user has answered there, call the same tool with call alone" in text
        (link,) = pages.links()
        sent = await pages.send(link, **GOOD, budget="99.5", born="2000-02-29", seat="aisle")
        assert (sent.status_code, "Thank you" in sent.text) == (200, True)
        value = Everything.model_validate_json(await pages.resume())
    assert (value.name, value.nights, value.agree, value.extras) == ("Ida", 3, True, ["bag"])
    assert (value.budget, value.born, value.seat) == (99.5, date(2000, 2, 29), "aisle")
    assert (value.email, value.mail, value.code) == (None, False, "ABC")


class Controls(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.controls: dict[str, list[dict[str, str | None]]] = {}
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if given.get("name"):
            self.controls.setdefault(str(given["name"]), []).append(given)


async def test_the_page_shows_every_field_with_titles_defaults_and_limits() -> None:
    async with visiting(linking()) as pages:
        await pages.call("fill")
        shown = await pages.browser.get(pages.links()[0])
    assert shown.status_code == 200
    found = Controls(shown.text)
    names = {name.removeprefix("field:") for name in found.controls if name.startswith("field:")}
    assert names == set(Everything.model_fields)
    assert "required" in found.controls["field:name"][0]
    assert "required" not in found.controls["field:email"][0]
    assert found.controls["field:code"][0]["value"] == "ABC"
    boxes = {box["value"]: "checked" in box for box in found.controls["field:extras"]}
    assert boxes == {"meal": True, "bag": False}
    assert '<option value="window" selected>' in shown.text
    for text in ("Your name", "As on the card", "2 to 20 characters", "1 to 30"):
        assert text in shown.text
    assert "script" not in found.tags


async def test_the_text_of_a_tool_is_text_and_nothing_is_loaded_framed_or_stored() -> None:
    async with visiting(linking()) as pages:
        await pages.call("fill")
        shown = await pages.browser.get(pages.links()[0])
    assert "<b>" not in shown.text
    assert (
        "All &lt;b&gt;about&lt;/b&gt; you &amp; &quot;yours&quot;\N{REPLACEMENT CHARACTER}?"
        in shown.text
    )
    policy = shown.headers["content-security-policy"]
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert shown.headers["x-frame-options"] == "DENY"
    assert shown.headers["cache-control"] == "no-store"
    assert shown.headers["x-content-type-options"] == "nosniff"


BAD: dict[str, Any] = {
    "name": '"><script>alert(1)</script>',
    "email": "nobody",
    "page": "no page",
    "born": "tomorrow",
    "meeting": "soon",
    "seat": "roof",
    "extras": ["meal", "bag", "cat"],
    "nights": "31",
    "budget": "nan",
    "code": "abc",
}


async def test_errors_stand_next_to_their_fields_and_entered_values_stay() -> None:
    async with visiting(linking()) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        shown = await pages.send(link, **BAD)
        assert shown.status_code == 422
        assert "<script>" not in shown.text
        found = Controls(shown.text)
        for name in ("name", "email", "page", "born", "meeting", "nights", "budget"):
            (control,) = found.controls[f"field:{name}"]
            assert control["value"] == BAD[name]
            assert control["aria-invalid"] == "true"
        errors = [unescape(each) for each in re.findall('<div class="error">([^<]*)<', shown.text)]
        assert errors == [
            "must have 2 to 20 characters",
            "not a valid email",
            "not a valid uri",
            "not a valid date",
            "not a valid date-time",
            "choose one of these",
            "choose from these",
            "must be 1 to 30",
            "not a number",
            "choose one",
        ]
        assert "Your name" in await pages.resume()  # the user entered nothing
        assert (await pages.send(pages.links()[0], **GOOD)).status_code == 200


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_can_decline_and_cancel_an_empty_form(action: str) -> None:
    async with visiting(linking()) as pages:
        await pages.call("fill")
        assert (await pages.send(pages.links()[0], action=action)).status_code == 200
        assert await pages.resume() == action


async def test_a_link_takes_one_answer() -> None:
    async with visiting(linking()) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        await pages.send(link, **GOOD)
        for again in (
            await pages.send(link, ORIGIN, **{**GOOD, "name": "Eve"}),
            await pages.browser.get(link),
        ):
            assert (again.status_code, "This question is closed" in again.text) == (410, True)
        assert '"name":"Ida"' in await pages.resume()
        assert (await pages.browser.get(link)).status_code == 410


async def test_each_question_has_a_link_and_stays_open_while_others_are_answered() -> None:
    async with visiting(linking()) as pages:
        await pages.call("two")
        first, second = pages.links()
        await pages.send(first, city="Oslo")
        await pages.resume()
        assert "From?" not in pages.text
        assert (await pages.send(second, city="Rome")).status_code == 200
        await pages.resume()
        assert "Via?" in pages.text
        assert (
            await pages.resume({"question": "two/elicit.3", "action": "decline"})
            == "Oslo Rome decline"
        )


async def test_the_users_answer_takes_precedence_over_the_models() -> None:
    async with visiting(linking()) as pages:
        await pages.call("two")
        await pages.send(pages.links()[0], city="Oslo")
        said = [
            {"question": f"two/elicit.{number}", "action": "accept", "content": {"city": "Bonn"}}
            for number in (1, 2)
        ]
        await pages.resume(*said)
        assert await pages.resume({**said[0], "question": "two/elicit.3"}) == "Oslo Bonn Bonn"


async def test_a_repeated_request_gets_the_same_reply_after_an_answer_is_entered() -> None:
    """The client repeats its request because the reply may have been lost."""
    async with visiting(linking()) as pages:
        first = await pages.call("two")
        one, other = pages.links()
        await pages.send(one, city="Oslo")
        await pages.resume()
        assert (await pages.send(other, city="Rome")).status_code == 200
        pages.text = first
        await pages.resume()
        assert "To?" in pages.text
        assert "From?" not in pages.text
        assert "Via?" in await pages.resume()


async def test_a_request_with_answers_can_be_repeated_after_an_answer_is_entered() -> None:
    async with visiting(linking()) as pages:
        first = await pages.call("two")
        await pages.send(pages.links()[1], city="Rome")
        said = {"question": "two/elicit.1", "action": "accept", "content": {"city": "Oslo"}}
        for _ in range(2):
            pages.text = first
            assert "Via?" in await pages.resume(said)
        last = {"question": "two/elicit.3", "action": "decline"}
        assert await pages.resume(last) == "Oslo Rome decline"


async def test_a_link_expires_with_its_call_and_no_other_token_is_one() -> None:
    clock = ManualClock(1e9)
    async with visiting(linking(clock=clock, ttl=60.0)) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        handle = HANDLE.findall(pages.text)[0]
        changed = link[:-5] + ("A" if link[-5] != "A" else "B") + link[-4:]
        for wrong in (f"/ask/{handle}", changed, "/ask/x", "/ask/%ff"):
            refused = await pages.browser.get(wrong)
            assert (refused.status_code, "not valid" in refused.text) == (404, True)
        clock.advance(89)
        assert (await pages.browser.get(link)).status_code == 200
        clock.advance(1)
        assert (await pages.browser.get(link)).status_code == 410
        assert (await pages.send(link, **GOOD)).status_code == 410


async def test_an_answer_entered_in_time_waits_for_its_client() -> None:
    clock, store = ManualClock(1e9), open_store("memory:")
    async with visiting(linking(clock=clock, ttl=60.0, store=store)) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        clock.advance(89)
        assert (await pages.send(link, **GOOD)).status_code == 200
        clock.advance(89)
        assert await store.expired(clock.now(), 9) == []
        assert "Ida" in await pages.resume()


async def test_a_form_submitted_during_a_round_is_used_by_the_next_round() -> None:
    clock, store = ManualClock(1e9), open_store("memory:")
    async with visiting(linking(clock=clock, store=store)) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        [record] = await store.calls(9)
        assert await store.open_round(record.call_id, 1, "worker", clock.now(), clock.now() + 15)
        assert (await pages.send(link, **GOOD)).status_code == 200
        await store.release(record.call_id, "worker")
        assert "Ida" in await pages.resume()


class Ending(Watched):
    """A store that lets calls expire between two requests of one page."""

    async def answer(
        self, call_id: str, answers: Mapping[str, str], **more: Any
    ) -> dict[str, str] | None:
        await self.store.take_to_undo(call_id, "reaper", 0.0, 1.0, is_due=False)
        return await self.store.answer(call_id, answers, **more)


class Overtaken(Watched):
    """A store that receives the same form twice at the same time."""

    async def answer(
        self, call_id: str, answers: Mapping[str, str], **more: Any
    ) -> dict[str, str] | None:
        first = dict.fromkeys(answers, '[{"action":"cancel"},null]')
        await self.store.answer(call_id, first, by="page")
        return await self.store.answer(call_id, answers, **more)


async def test_the_first_of_two_simultaneous_forms_is_accepted() -> None:
    async with visiting(linking(store=Overtaken(Modelled()))) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        assert (await pages.send(link, **GOOD)).status_code == 410


async def test_a_form_for_a_call_that_has_just_expired_is_refused() -> None:
    async with visiting(linking(store=Ending(Modelled()))) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        assert (await pages.send(link, **GOOD)).status_code == 410


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "null"}, {"Origin": "https://evil.example"}, {"Origin": f"{URL}:8443"}],
)
async def test_a_form_of_another_page_is_refused(headers: dict[str, str]) -> None:
    async with visiting(linking()) as pages:
        await pages.call("fill")
        assert (await pages.send(pages.links()[0], headers, **GOOD)).status_code == 403
        assert "Your name" in await pages.resume()


async def test_bodies_that_no_form_sends_are_refused() -> None:
    async with visiting(linking()) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        form = {**ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
        bodies: list[tuple[bytes, dict[str, str], int]] = [
            (b"{}", {**ORIGIN, "Content-Type": "application/json"}, 415),
            (b"a=" + b"x" * 300_000, form, 413),
            (b"a=&" * 2000, form, 413),
            (b"\xff=%ff&field:name=%00", form, 422),
        ]
        for body, headers, status in bodies:
            sent = await pages.browser.post(link, content=body, headers=headers)
            assert sent.status_code == status


async def test_the_page_reports_a_failing_store(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/calls.db")
    async with visiting(linking(store=store)) as pages:
        await pages.call("fill")
        (link,) = pages.links()
        await store.close()
        sent = await pages.send(link, **GOOD)
    assert (sent.status_code, "Please try again" in sent.text) == (503, True)


async def test_only_the_caller_of_the_call_continues_with_an_entered_answer() -> None:
    """The page belongs to one server; a second server without that store receives the handle."""
    async with visiting(linking()) as pages:
        await pages.call("fill")
        await pages.send(pages.links()[0], **GOOD)
        handle = HANDLE.findall(pages.text)[0]
    async with connected(
        create_server("other", [fill], keys=[KEY], ask="fallback"), MODERN
    ) as client:
        refused = await client.call_tool("answer_questions", {"call": handle})
    assert refused.is_error


async def test_installed_tools_have_pages_on_existing_servers() -> None:
    from mcp.server.mcpserver import MCPServer

    options: dict[str, Any] = {"keys": [KEY], "store": "memory:", "ask": "fallback", "ask_url": URL}
    theirs: MCPServer[Any] = MCPServer("theirs")
    install(theirs, fill, **options)
    async with visiting(theirs) as pages:
        await pages.call("fill")
        assert (await pages.browser.get(pages.links()[0])).status_code == 200
    fast: FastMCP[Any] = FastMCP("fast")
    install_fastmcp(fast, fill, **options)
    app = fast.http_app()
    async with asgi(app) as url, connected(url, HANDSHAKE) as client:
        text = text_of(await client.call_tool("fill"))
        async with httpx2.AsyncClient(
            base_url=url.removesuffix("/mcp"), timeout=PATIENCE
        ) as browser:
            assert (await browser.get(LINK.findall(text)[0])).status_code == 200


@pytest.mark.parametrize("url", ["tools.example.org", "ftp://x", "https://", "https://x/?a=b"])
def test_an_address_that_no_browser_reaches_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="ask_url must be like https:"):
        linking(ask_url=url)


@pytest.mark.parametrize("lacking", [{"store": None}, {"ask": "client"}])
def test_links_need_a_store_and_the_fallback(lacking: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ask_url= needs ask='fallback' and a store="):
        linking(**lacking)


def test_a_form_requires_a_choice_only_where_its_model_does() -> None:
    class Choices(BaseModel):
        some: list[Literal["a", "b"]] = Field(default=["a"], min_length=1)
        any: list[Literal["a", "b"]] = ["a"]
        must: list[Literal["a", "b"]] = Field(min_length=1)

    content, errors = read_form(Form.model_validate(form_schema(Choices)), {})
    assert content == {"any": []}
    assert errors == {"must": "choose at least 1 choices"}


async def test_a_client_that_shows_forms_gets_no_links() -> None:
    answers = Answers(lambda _: accept(city="Rome"))
    async with connected(linking(), MODERN, answers) as client:
        assert text_of(await client.call_tool("two")) == "Rome Rome Rome"


def only_links(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
    """Declare, in either era, a client that opens pages and shows no forms."""
    if not isinstance(message, types.JSONRPCRequest):
        return message
    params: dict[str, Any] = {**(message.params or {})}
    for holder in (params, params.setdefault("_meta", {})):
        for name in holder.keys() & {"capabilities", "io.modelcontextprotocol/clientCapabilities"}:
            holder[name] = {"elicitation": {"url": {}}}
    return message.model_copy(update={"params": params})


@asynccontextmanager
async def opening(server: Any, era: str, fields: Mapping[str, Any] | None) -> AsyncGenerator[Any]:
    """Return a client that opens pages; the user enters ``fields`` there immediately, if given."""
    opened: list[str] = []

    async def consent(params: Any) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        opened.append(params.url)
        if fields is not None:
            data = {f"field:{name}": fields[name] for name in fields}
            await browser.post(params.url.removeprefix(URL), data=data, headers=ORIGIN)
        return accept()

    async with (
        asgi(server.streamable_http_app()) as url,
        httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=PATIENCE) as browser,
        connected(meddling(url, only_links), era, Answers(consent)) as client,
    ):
        pages = Pages(client, browser)
        yield pages, opened


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_opens_pages_opens_those_of_the_questions(era: str) -> None:
    async with opening(linking(), era, {"city": "Rome"}) as (pages, opened):
        assert await pages.call("two") == "Rome Rome Rome"
    assert len(set(opened)) == 3


@pytest.mark.parametrize("era", ERAS)
async def test_a_page_that_was_opened_and_not_filled_in_is_in_the_result(era: str) -> None:
    """The user has agreed to open the page, and answers after the request has ended."""
    async with opening(linking(), era, None) as (pages, opened):
        text = await pages.call("fill")
        assert len(opened) == 1
        assert "Your name" in text
        (link,) = pages.links()
        await pages.send(link, **GOOD)
        assert '"name":"Ida"' in await pages.resume()
    assert len(opened) == 1


async def test_an_entered_answer_outlives_the_server_and_another_takes_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/calls.db"
    async with visiting(linking(store=store)) as first:
        await first.call("fill")
    async with visiting(linking(store=store)) as second:
        await second.send(first.links()[0], **GOOD)
    async with visiting(linking(store=store)) as third:
        third.text = first.text
        assert '"name":"Ida"' in await third.resume()
