"""The states of the page: branches, running tools, forms, drafts, labels, modules; by keyboard; audited."""

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.chat import make_chat_app, make_plugin
from anabranch.testing import MockModel, calls
from examples.pick_card import PickCard
from tests.agents.memory import MemoryTrees
from tests.chat.web import serving
from tests.durable.stores import Modelled
from tests.interop.browsing import FITS, LOOKS, NARROW, Look, Tab, audited, tab
from tests.interop.page_scenes import scenes

SEATS = re.compile("How many seats")
CARD = re.compile("Pick a card")


async def fill_seats(opened: Tab) -> None:
    form = opened.question(SEATS)
    await form.get_by_label("Seats", exact=True).fill("2")
    await form.get_by_label("Day").fill("2026-12-01")


async def test_branches_are_shown_in_parallel_with_their_outcomes(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("Think of two ways to get there")
        await expect(opened.messages.get_by_text("The judge prefers the train")).to_be_visible()
        branches = page.get_by_role("region", name=re.compile(r"^Branch \d"))
        await expect(branches).to_have_count(2)
        left, right = await branches.evaluate_all(
            "all => all.map(each => each.getBoundingClientRect().toJSON())"
        )
        assert (left["top"], left["right"] <= right["left"]) == (right["top"], True)
        await expect(page.get_by_label("Result")).to_contain_text("Option 1")
        await opened.press(page.get_by_role("button", name="Open branch").first)
        first = opened.messages.get_by_role("article", name="Branch")
        await expect(first).to_contain_text("Argue for the night train")
        await expect(page.get_by_role("treeitem", selected=True)).to_contain_text("night train")


async def test_a_running_tool_reports_and_is_stopped_after_a_reload(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("watch the gate")
        await expect(page.get_by_role("progressbar", name="Progress of watch")).to_have_attribute(
            "value", "64"
        )
        await expect(page.get_by_text("Watching gate B7")).to_be_visible()
        await expect(page.get_by_label("Branches")).to_contain_text("board#1 open")
        await expect(page.get_by_role("button", name="Send")).to_be_disabled()
        await page.reload()
        await expect(page.get_by_role("progressbar", name="Progress of watch")).to_have_attribute(
            "value", "64"
        )
        await page.get_by_role("button", name="Stop").click()
        await expect(opened.messages.get_by_text("Stopped by you.")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)


async def test_tokens_and_costs_of_nodes_and_of_the_whole_are_shown(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        await opened.say("thanks")
        reply = opened.messages.get_by_role("article", name="Model")
        await expect(reply).to_contain_text(re.compile(r"\d+ \+ \d+ tokens · cost 0\.\d+"))
        total = opened.page.get_by_text(re.compile(r"^[\d.K]+ tokens · cost 0\.\d+"))
        await expect(total).to_be_visible()


async def test_drafts_outlive_a_reload(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("book a flight")
        await fill_seats(opened)
        await opened.question(SEATS).get_by_label("Window seat").uncheck()
        await page.get_by_role("textbox", name="Message").fill("not yet said")
        await page.reload()
        form = opened.question(SEATS)
        await expect(form.get_by_label("Seats", exact=True)).to_have_value("2")
        await expect(form.get_by_label("Window seat")).not_to_be_checked()
        await expect(page.get_by_role("textbox", name="Message")).to_have_value("not yet said")
        await form.get_by_role("button", name="Accept").click()
        await expect(opened.messages.get_by_text("Two seats are yours")).to_be_visible()


async def test_the_page_sets_and_removes_a_label(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("thanks")
        row = page.get_by_role("treeitem").first
        await row.focus()
        await page.keyboard.press("l")
        await page.get_by_role("dialog").get_by_label("Label").fill("start")
        await page.keyboard.press("Enter")
        await expect(row).to_contain_text("start")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await row.focus()
        await page.keyboard.press("l")
        await page.get_by_role("button", name="Remove start").click()
        await page.get_by_role("button", name="Close").click()
        await expect(row).not_to_contain_text("start")


async def test_the_conversation_continues_from_a_node_of_the_tree(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("thanks")
        await expect(page.get_by_role("treeitem")).to_have_count(2)
        await opened.say("thanks again")
        await expect(page.get_by_role("treeitem")).to_have_count(4)
        row = page.get_by_role("treeitem").nth(1)
        await row.hover()
        await row.get_by_role("button", name="Continue from here").click()
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        await expect(page.get_by_text("You continue from here")).to_be_visible()
        await opened.type("instead")
        await expect(opened.messages.get_by_text("instead")).to_be_visible()
        await expect(page.get_by_text("2 / 2")).to_be_visible()
        await opened.press(page.get_by_role("button", name="Previous version"))
        await expect(opened.messages.get_by_text("thanks again")).to_be_visible()


# -- forms -----------------------------------------------------------------------------------

FIELDS: dict[str, Any] = {
    "city": {"type": "string", "title": "City", "minLength": 2, "maxLength": 20},
    "mail": {"type": "string", "title": "E-mail", "format": "email"},
    "site": {"type": "string", "title": "Site", "format": "uri"},
    "day": {"type": "string", "title": "Day", "format": "date", "default": "2026-12-01"},
    "at": {
        "type": "string",
        "title": "Moment",
        "format": "date-time",
        "default": "2026-12-01T09:30:00Z",
    },
    "count": {"type": "integer", "title": "Count", "minimum": 1, "maximum": 9, "default": 3},
    "price": {"type": "number", "title": "Price", "minimum": 0},
    "sure": {"type": "boolean", "title": "Sure", "default": True},
    "size": {"type": "string", "title": "Size", "enum": ["s", "m"], "enumNames": ["Small", "Mid"]},
    "hue": {
        "type": "string",
        "title": "Hue",
        "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}],
        "default": "b",
    },
    "tags": {
        "type": "array",
        "title": "Tags",
        "minItems": 1,
        "maxItems": 2,
        "items": {"anyOf": [{"const": each, "title": each.upper()} for each in "xyz"]},
        "default": ["y"],
    },
    "note": {"type": "string", "title": "Note", "maxLength": 900},
}
ENTERED: dict[str, Any] = {
    "city": "Linz",
    "day": "2026-12-01",
    "at": "2026-12-01T09:30:00.000Z",
    "count": 4,
    "price": 2.5,
    "sure": True,
    "size": "m",
    "hue": "b",
    "tags": ["y", "z"],
}


def asked(name: str, message: str, schema: dict[str, Any]) -> dict[str, Any]:
    about = {"tool_name": "survey", "key": name, "call_id": "c", "seq": 0}
    return {"id": about, "interrupt_id": name, "message": message, "schema": schema}


async def test_every_kind_of_field_is_asked_among_several_questions(browser: Browser) -> None:
    schema = {"type": "object", "properties": FIELDS, "required": ["city", "count", "size", "tags"]}
    other = {"type": "object", "properties": {"ok": {"type": "boolean", "title": "Fine"}}}
    questions = [asked("all", "Everything", schema), asked("one", "One thing", other)]
    answers: list[dict[str, Any]] = []

    async def pending(route: Route) -> None:
        open_ones = [
            q for q in questions if q["interrupt_id"] not in {a["interrupt_id"] for a in answers}
        ]
        await route.fulfill(json=open_ones)

    async def answer(route: Route) -> None:
        body = json.loads(route.request.post_data or "")
        answers.append(body)
        await route.fulfill(json={})

    async with scenes() as address:
        context = await browser.new_context(timezone_id="Europe/Vienna", locale="en-GB")
        async with tab(context, address) as opened:
            page = opened.page
            await opened.say("thanks")
            await expect(opened.messages.get_by_text("You are welcome")).to_be_visible()
            await page.route("**/pending", pending)
            await page.route("**/answers", answer)
            await page.reload()
            first, second = opened.question("Everything"), opened.question("One thing")
            await expect(first.get_by_label("Moment")).to_have_value("2026-12-01T10:30")
            await expect(first.get_by_label("Hue")).to_have_value("b")
            await expect(first.get_by_label("Hue").locator("option")).to_have_count(3)
            await expect(first.get_by_label("Note")).to_have_js_property("tagName", "TEXTAREA")
            await expect(first.get_by_label("X", exact=True)).not_to_be_checked()
            await expect(first.get_by_label("Y", exact=True)).to_be_checked()
            # The page shows each error next to its field, and the first of the fields has the
            # focus.
            await first.get_by_label("Count").fill("12")
            await first.get_by_label("E-mail").fill("nobody")
            await first.get_by_label("Y", exact=True).uncheck()
            await first.get_by_role("button", name="Accept").click()
            for label in ("City", "Count", "E-mail", "Size", "X"):
                await expect(first.get_by_label(label, exact=True)).to_have_attribute(
                    "aria-invalid", "true"
                )
            await expect(first.get_by_label("City")).to_be_focused()
            await expect(first.get_by_text("Choose at least 1.")).to_be_visible()
            await expect(first.get_by_label("Hue")).not_to_have_attribute("aria-invalid", "true")
            assert answers == []
            await first.get_by_label("City").fill("Linz")
            await first.get_by_label("Count").fill("4")
            await first.get_by_label("E-mail").fill("")
            await first.get_by_label("Price").fill("2.5")
            await first.get_by_label("Size").select_option("Mid")
            await first.get_by_label("Y", exact=True).check()
            await first.get_by_label("Z", exact=True).check()
            # The user answers each question separately.
            await second.get_by_role("button", name="Decline").click()
            await expect(second).to_have_count(0)
            await first.get_by_role("button", name="Accept").click()
            await expect(first).to_have_count(0)
    assert answers == [
        {"interrupt_id": "one", "action": "decline"},
        {"interrupt_id": "all", "action": "accept", "content": ENTERED},
    ]


UNTOUCHED: dict[str, Any] = {
    "flag": {"type": "boolean", "title": "Flag"},
    "said": {"type": "boolean", "title": "Said"},
    "preset": {"type": "boolean", "title": "Preset", "default": False},
    "must": {"type": "boolean", "title": "Must"},
    "some": {"type": "array", "minItems": 1, "title": "Some", "items": {"enum": ["a", "b"]}},
    "any": {"type": "array", "title": "Any", "items": {"enum": ["c", "d"]}},
    "emptied": {"type": "array", "title": "Emptied", "items": {"enum": ["e"]}, "default": ["e"]},
    "level": {"type": "integer", "title": "Level", "enum": [1, 2]},
    "levels": {"type": "array", "title": "Levels", "items": {"enum": [7, 8]}},
    "mode": {"title": "Mode", "enum": ["auto", 3, True]},
}


async def test_untouched_fields_are_left_out_and_choices_keep_their_type(browser: Browser) -> None:
    schema = {"type": "object", "properties": UNTOUCHED, "required": ["must"]}
    answers: list[dict[str, Any]] = []

    async def pending(route: Route) -> None:
        await route.fulfill(json=[] if answers else [asked("all", "Everything", schema)])

    async def answer(route: Route) -> None:
        answers.append(json.loads(route.request.post_data or ""))
        await route.fulfill(json={})

    async with scenes() as address, tab(browser, address) as opened:
        await opened.say("thanks")
        await expect(opened.messages.get_by_text("You are welcome")).to_be_visible()
        await opened.page.route("**/pending", pending)
        await opened.page.route("**/answers", answer)
        await opened.page.reload()
        form = opened.question("Everything")
        await form.get_by_label("Said").select_option("No")
        await form.get_by_label("e", exact=True).uncheck()
        await form.get_by_label("Level", exact=True).select_option("2")
        await form.get_by_label("8", exact=True).check()
        await form.get_by_label("Mode").select_option("true")
        await form.get_by_role("button", name="Accept").click()
        await expect(form).to_have_count(0)
    assert [each["content"] for each in answers] == [
        {
            "said": False,
            "preset": False,
            "must": False,
            "emptied": [],
            "level": 2,
            "levels": [8],
            "mode": True,
        }
    ]


# -- modules ---------------------------------------------------------------------------------

REFUSED = """
export default async function show(element, question, signal) {
  element.textContent = question.errors.length ? `again: ${question.errors[0].field}` : "first";
  window.seen = [...(window.seen ?? []), question];
  if (question.draft) await new Promise(() => {});
  return { action: "accept", content: { cardNumber: 99 } };
}
"""


async def played(browser: Browser, source: str, folder: Any) -> AsyncGenerator[Tab]:
    """Yield a tab in which the question of pick_card is open, shown by the module ``source``."""
    file = folder / "cards.mjs"
    file.write_text(source, encoding="utf-8")
    plugin = make_plugin(PickCard(), expose=("handoff.cards",)).on_page("card", file).build()
    replies = MockModel(
        lambda request: (
            "Played."
            if any(block.type == "tool_result" for block in request.messages[-1].content)
            else calls(("u", "pick_card", {"count": 3}))
        )
    )
    async with serving(make_chat_app(MemoryTrees(), replies, [plugin])) as address:
        page = await browser.new_page()
        opened = Tab(page)
        await page.goto(address)
        await opened.say("play")
        yield opened
        await page.close()


async def test_a_module_is_called_again_with_the_fault(browser: Browser, tmp_path: Any) -> None:
    async for opened in played(browser, REFUSED, tmp_path):
        form = opened.question(CARD)
        await expect(form.get_by_text("again: cardNumber")).to_be_visible()
        await expect(form.get_by_role("alert")).to_contain_text("99 is greater")
        first, second = await opened.page.evaluate("window.seen")
        assert first.keys() == {
            "message", "schema", "params", "handoff", "context", "errors", "draft",
        }  # fmt: skip
        assert (first["params"], first["handoff"].keys(), first["draft"]) == ({}, {"cards"}, None)
        assert second["draft"] == {"cardNumber": 99}
        await expect(form.get_by_label("Card number")).to_have_count(0)
        await form.get_by_role("button", name="Answer by form").click()
        await form.get_by_label("Card number").fill("2")
        await form.get_by_role("button", name="Accept").click()
        await expect(opened.messages.get_by_text("Played.")).to_be_visible()
        assert all("status of 422" in each for each in opened.faults)


@pytest.mark.parametrize(
    "source",
    ["export default async () => 3;", "throw new Error('no');", "export const nothing = 1;"],
    ids=["no answer", "does not load", "no function"],
)
async def test_the_form_stands_in_for_a_module_that_fails(
    browser: Browser, tmp_path: Any, source: str
) -> None:
    async for opened in played(browser, source, tmp_path):
        form = opened.question(CARD)
        await form.get_by_label("Card number").fill("2")
        await form.get_by_role("button", name="Accept").click()
        await expect(opened.messages.get_by_text("Played.")).to_be_visible()
        assert len(opened.faults) == 1
        assert opened.faults[0].startswith("error: The module for pick_card failed.")


# -- accessibility ---------------------------------------------------------------------------


async def test_a_whole_conversation_needs_no_mouse(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        page, keys = opened.page, opened.page.keyboard

        async def tab_to(name: str, *, back: bool = False) -> None:
            for _ in range(40):
                await keys.press("Shift+Tab" if back else "Tab")
                focused = "document.activeElement.ariaLabel || document.activeElement.name || document.activeElement.innerText"
                if name in str(await page.evaluate(focused)):
                    return
            raise AssertionError(f"{name} is not reached")

        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        await opened.type("book a flight")
        await expect(opened.question(SEATS)).to_be_visible()
        await expect(opened.question(SEATS).get_by_label("Seats", exact=True)).to_be_focused()
        await keys.type("2")
        await tab_to("day")
        await keys.type("01122026")
        await keys.press("Enter")
        await expect(opened.messages.get_by_text("Two seats are yours")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        await tab_to("Message")
        await opened.type("thanks")
        await expect(opened.messages.get_by_text("You are welcome")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        rows = page.get_by_role("treeitem")
        last = rows.filter(has_text="You are welcome")
        await expect(last).to_have_attribute("aria-selected", "true")
        await last.focus()
        await keys.press("Home")
        await expect(rows.first).to_be_focused()
        await keys.press("ArrowDown")
        await expect(rows.nth(1)).to_be_focused()
        await keys.press("Enter")
        await expect(page.get_by_text("You continue from here")).to_be_visible()
        await tab_to("Continue from here")
        await keys.press("Enter")
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()


@LOOKS
async def test_an_audit_finds_nothing_serious_in_any_state(browser: Browser, look: Look) -> None:
    async with scenes() as address, audited(browser, address, look) as (opened, audit):
        page = opened.page
        await expect(page.get_by_role("button", name="/book")).to_be_visible()
        await audit("welcome")
        await opened.say("book a flight")
        await expect(opened.question(SEATS)).to_be_visible()
        await audit("question")
        await opened.question(SEATS).get_by_role("button", name="Accept").click()
        await expect(opened.question(SEATS).get_by_label("Seats", exact=True)).to_be_focused()
        await audit("refused")
        await fill_seats(opened)
        await opened.question(SEATS).get_by_role("button", name="Accept").click()
        await expect(opened.messages.get_by_text("Two seats are yours")).to_be_visible()
        await audit("answered")
        await opened.say("Think of two ways to get there")
        await expect(opened.messages.get_by_text("The judge prefers")).to_be_visible()
        await audit("branches")
        await opened.say("watch the gate")
        await expect(page.get_by_text("Boarding")).to_be_visible()
        await audit("running")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        await opened.press(opened.messages.get_by_role("button", name="Label").last)
        await expect(page.get_by_role("dialog")).to_be_visible()
        await audit("labels")
        await page.keyboard.press("Escape")
        if look == NARROW:
            await page.get_by_role("button", name="Tree").click()
            await expect(page.get_by_role("tree")).to_be_in_viewport()
            await audit("tree")
            await page.keyboard.press("Escape")
            await page.get_by_role("button", name="Conversations").click()
            await expect(page.get_by_role("button", name="New conversation")).to_be_in_viewport()
            await audit("conversations")


@tool
async def remind(ctx: BranchContext) -> str:
    await ctx.sleep(7 * 86_400.0)
    return "Remember the milk."


class Row(BaseModel):
    row: int


@tool
async def take_seat(ctx: BranchContext) -> str:
    """Ask for a row, until tomorrow."""
    await ctx.race(ctx.elicit(Row, "Which row?"), ctx.sleep(86_400.0))
    return "A seat."


async def test_a_tool_that_sleeps_and_a_question_in_time_say_until_when(browser: Browser) -> None:
    app = make_chat_app(
        MemoryTrees(), MockModel(lambda _: "Well."), [remind, take_seat], calls=Modelled()
    )
    async with serving(app) as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("/remind")
        for _ in range(2):
            await expect(page.get_by_text(re.compile(r"waits until .*\d"))).to_be_visible()
            await expect(page.locator(".status")).to_have_text(re.compile(r"^Waits until .*\d"))
            await page.reload()
        async with tab(browser, page.url, viewport=NARROW["viewport"]) as narrow:
            status = narrow.page.locator(".status")
            await expect(status).to_have_text(re.compile(r"^Waits until .*\d"))
            await narrow.until(FITS)
            await narrow.screen("sleeping-narrow")
        await page.get_by_role("button", name="Stop").click()
        await expect(opened.messages.get_by_text("Stopped by you.")).to_be_visible()
        await opened.say("/take_seat")
        for _ in range(2):
            limit = page.get_by_text(re.compile(r"Without an answer, the tool continues at .*\d"))
            await expect(limit).to_be_visible()
            await page.reload()
