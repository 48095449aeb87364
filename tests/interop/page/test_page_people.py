"""The page as users see it: errors and stops with Retry, answers, visible questions, waiting branches."""

import asyncio
import base64
import re
from typing import Any

import pytest
from playwright.async_api import Browser, Route, ViewportSize, expect
from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, tool
from anabranch.agents import Folding
from anabranch.chat import make_chat_app
from anabranch.messages import ImageBlock, TextBlock
from anabranch.models import ModelError
from anabranch.testing import MockModel, calls
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.chat.web import serving
from tests.cli.demo import without_model
from tests.interop.browsing import LOOKS, Look, Tab, audited, tab
from tests.interop.page_scenes import picture


class Seats(BaseModel):
    """The form of the tools."""

    seats: int = Field(title="Seats", ge=1)


async def ask_for(ctx: BranchContext, name: str) -> int:
    answer = await ctx.elicit(Seats, f"How many seats for {name}?")
    return answer.content.seats if isinstance(answer, Accepted) else 0


@tool
async def book(ctx: BranchContext) -> str:
    """Ask for two people, each in a branch."""
    ann, bo = await ctx.gather(ctx.branch(ask_for, "Ann"), ctx.branch(ask_for, "Bo"))
    return f"- **{ann}** for Ann\n- **{bo}** for Bo"


class Long(BaseModel):
    """A form that is higher than most windows."""

    one: int = Field(title="One")
    two: str = Field(title="Two")
    three: str = Field(title="Three")
    four: str = Field(title="Four")
    five: str = Field(title="Five")
    six: str = Field(title="Six")


@tool
async def survey(ctx: BranchContext) -> str:
    answer = await ctx.elicit(Long, "Six things, please.")
    return f"The survey is over: {answer.action}."


@tool
async def draw(ctx: BranchContext) -> list[Any]:
    del ctx
    data = base64.b64encode(picture()).decode()
    return [TextBlock(text="A **square**:"), ImageBlock(mime_type="image/png", data=data)]


@tool
async def wait(ctx: BranchContext) -> str:
    await ctx.log("info", "It waits")
    await asyncio.Event().wait()
    return "never"


def application(*replies: Any, tools: Any = (book, survey, draw, wait)) -> Any:
    """Return the application; the model gives these replies, then repeats the message."""
    given = list(replies)
    model = MockModel(lambda request: given.pop(0) if given else f"Heard: {heard(request)}")
    return make_chat_app(MemoryTrees(), model, tools)


# -- how turns end ---------------------------------------------------------------------------


async def test_the_first_message_shows_why_no_model_replies(browser: Browser) -> None:
    app = without_model(draw)
    async with serving(app) as address, tab(browser, address) as opened:
        await opened.say("hello")
        for _ in range(2):
            failed = opened.messages.get_by_role("alert")
            await expect(failed).to_contain_text("No model is configured")
            await expect(failed.get_by_role("button", name="Retry")).to_be_enabled()
            await opened.page.reload()
        # Later messages leave the error in its place, and a retry is not possible there.
        await opened.say("/draw")
        await expect(opened.messages.get_by_role("img")).to_be_visible()
        await expect(opened.messages.get_by_role("alert")).to_have_count(1)
        await expect(opened.page.get_by_role("button", name="Retry")).to_have_count(0)


async def test_a_turn_that_failed_is_tried_again(browser: Browser) -> None:
    app = application(ModelError("The model is overloaded."), "Here I am.")
    async with serving(app) as address, tab(browser, address) as opened:
        await opened.say("hello")
        await expect(opened.messages.get_by_text("overloaded")).to_be_visible()
        await opened.page.get_by_role("button", name="Retry").click()
        await expect(opened.messages.get_by_text("Here I am.")).to_be_visible()
        await expect(opened.messages.get_by_text("overloaded")).to_have_count(0)


async def test_escape_closes_a_dialog_then_stops_the_turn_without_an_error(
    browser: Browser,
) -> None:
    async with serving(application()) as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("/wait")
        await expect(opened.messages.get_by_text("It waits")).to_be_visible()
        await opened.press(opened.messages.get_by_role("button", name="Label").last)
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await page.keyboard.press("Escape")
        for _ in range(2):
            await expect(opened.messages.get_by_text("Stopped by you.")).to_be_visible()
            await expect(page.locator("summary")).to_contain_text("wait stopped")
            await expect(opened.messages.get_by_text("failed")).to_have_count(0)
            await page.reload()
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator("summary")).to_contain_text("wait running")
        await expect(page.get_by_label("Versions")).to_contain_text("2 / 2")
        await page.get_by_role("button", name="Stop").click()
        await expect(opened.messages.get_by_text("Stopped by you.")).to_be_visible()


async def test_a_call_that_ended_on_another_branch_says_so(browser: Browser) -> None:
    app = application(calls(("u1", "survey", {}), text="I ask."), "Thanks.")
    async with serving(app) as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("ask me")
        await opened.question("Six things").get_by_role("button", name="Decline").click()
        await expect(opened.messages.get_by_text("Thanks.")).to_be_visible()
        row = page.get_by_role("treeitem", name=re.compile("I ask"))
        await row.hover()
        await row.get_by_role("button", name="Continue from here").click()
        card = page.locator("summary", has_text="survey")
        await expect(card).to_contain_text("done on another branch")
        await opened.say("something else")
        await expect(opened.messages.get_by_text("Heard: something else")).to_be_visible()
        for _ in range(2):
            await expect(card).to_contain_text("done on another branch")
            await page.reload()


# -- answers ---------------------------------------------------------------------------------


async def test_the_value_of_a_tool_called_by_the_user_is_the_answer(browser: Browser) -> None:
    async with serving(application()) as address, tab(browser, address) as opened:
        await opened.say("/draw")
        for _ in range(2):
            result = opened.messages.get_by_role("article", name="draw").get_by_label("Result")
            await expect(result.locator("strong")).to_have_text("square")
            await expect(result.get_by_role("img")).to_be_visible()
            await opened.page.reload()


async def test_questions_stand_next_to_answers_and_before_the_result(browser: Browser) -> None:
    async with serving(application()) as address, tab(browser, address) as opened:
        await opened.say("/book")
        inner = opened.page.get_by_label("Branches").get_by_role("listitem")
        await expect(inner).to_have_text(
            [re.compile(r"ask_for#1 waits for you"), re.compile(r"ask_for#2 waits for you")]
        )
        await expect(opened.question("Ann")).to_contain_text("in the branch ask_for#1")
        await opened.question("Bo").get_by_label("Seats", exact=True).fill("3")
        await opened.question("Bo").get_by_role("button", name="Accept").click()
        await opened.question("Ann").get_by_role("button", name="Decline").click()
        result = opened.messages.get_by_role("article", name="book")
        await expect(result.get_by_role("listitem")).to_have_text(["0 for Ann", "3 for Bo"])
        asked = opened.messages.get_by_role("article", name="Question")
        await expect(asked.nth(0)).to_contain_text(re.compile("for Ann.*Your answer.*Declined"))
        await expect(asked.nth(1)).to_contain_text(re.compile("for Bo.*Your answer.*seats.*3"))
        articles = opened.messages.get_by_role("article")
        names = await articles.evaluate_all("all => all.map(each => each.ariaLabel)")
        assert names[-3:] == ["Question", "Question", "book"]


async def test_a_message_warns_first_that_it_skips_the_question(browser: Browser) -> None:
    async with serving(application()) as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("/survey")
        box = page.get_by_role("textbox", name="Message")
        await expect(box).to_have_accessible_description(re.compile("skips the question of survey"))
        await expect(page.get_by_role("button", name="Send")).not_to_have_class(
            re.compile("primary")
        )
        await opened.say("never mind")
        await expect(opened.messages.get_by_text("Heard: never mind")).to_be_visible()
        for _ in range(2):
            asked = opened.messages.get_by_role("article", name="Question")
            await expect(asked).to_contain_text("Left unanswered")
            await expect(asked).not_to_contain_text("Your answer")
            await expect(page.get_by_text("skips the question")).to_have_count(0)
            await page.reload()


# -- questions -------------------------------------------------------------------------------


ABOVE_THE_BOX = """
document.querySelector("form .primary").getBoundingClientRect().bottom
    <= document.querySelector(".composer").getBoundingClientRect().top
"""
"""Accept is not behind the box in which one writes."""


@pytest.mark.parametrize(("width", "height"), [(1180, 480), (375, 520)])
async def test_accept_is_in_sight_and_the_question_has_the_focus(
    browser: Browser, width: int, height: int
) -> None:
    size: ViewportSize = {"width": width, "height": height}
    async with serving(application()) as address, tab(browser, address, viewport=size) as opened:
        page = opened.page
        for text in ("one", "two", "three", "four"):
            await opened.say(text)
            await expect(opened.messages.get_by_text(f"Heard: {text}")).to_be_visible()
        await page.locator(".scrolled").evaluate("(box) => box.scrollTo(0, 0)")
        await opened.say("/survey")
        form = opened.question("Six things")
        await expect(form.get_by_text("Six things, please.")).to_be_in_viewport()
        await expect(form.get_by_label("One")).to_be_focused()
        await expect(form.get_by_role("button", name="Accept")).to_be_in_viewport(ratio=1)
        await opened.until(ABOVE_THE_BOX)
        await opened.screen(f"in-sight-{width}")


async def test_a_question_takes_no_focus_from_a_writing_user(browser: Browser) -> None:
    asked = asyncio.Event()

    @tool
    async def later(ctx: BranchContext) -> str:
        """Ask when the user is writing."""
        await asked.wait()
        return (await ctx.elicit(Long, "Now?")).action

    app = application(tools=(later,))
    async with serving(app) as address, tab(browser, address) as opened:
        box = opened.page.get_by_role("textbox", name="Message")
        await opened.say("/later")
        await expect(opened.page.locator("summary")).to_contain_text("later running")
        await box.fill("I am writ")
        asked.set()
        await expect(opened.question("Now?")).to_be_in_viewport()
        await expect(box).to_be_focused()


async def test_no_key_that_was_meant_for_something_else_accepts(browser: Browser) -> None:
    class Sure(BaseModel):
        sure: bool = True

    @tool
    async def delete(ctx: BranchContext) -> str:
        return (await ctx.elicit(Sure, "Delete everything?")).action

    app = application(tools=(delete,))
    async with serving(app) as address, tab(browser, address) as opened:
        await opened.say("/delete")
        form = opened.question("Delete everything?")
        await expect(form).to_be_focused()
        for key in ("Enter", "Space", "y"):
            await opened.page.keyboard.press(key)
        await form.get_by_role("button", name="Decline").click()
        await expect(opened.messages.get_by_role("article", name="delete")).to_have_text(
            re.compile("decline")
        )


async def test_an_unsent_answer_is_marked_and_sent_again(browser: Browser) -> None:
    async with serving(application()) as address:
        page = await browser.new_page()
        opened = Tab(page)
        await page.goto(address)
        await opened.say("/book")
        form = opened.question("Ann")
        sent: list[str] = []

        async def answers(route: Route) -> None:
            sent.append(route.request.post_data or "")
            if len(sent) == 1:
                await route.abort()
            elif len(sent) == 2:
                await route.fulfill(status=503, json={"error": "Try again."})
            else:
                await route.continue_()

        await page.route("**/answers", answers)
        await form.get_by_label("Seats", exact=True).fill("2")
        await form.get_by_role("button", name="Accept").click()
        await expect(form.get_by_role("alert")).to_contain_text(
            "Your answer is not sent yet. The page will send it again."
        )
        await expect(form).to_have_count(0)
        assert len(sent) == 3
        assert len(set(sent)) == 1
        await page.unroute_all(behavior="ignoreErrors")
        await page.close()


# -- branches --------------------------------------------------------------------------------


def in_branch() -> Any:
    create = {"description": "Seats for two people", "prompt": "OBEY: ask them both."}
    return calls(("u1", "branch_create", create), text="In a branch.")


def folding(request: Any) -> Any:
    """A model that books in a branch, and returns from it."""
    said, last = heard(request), request.messages[-1]
    if said.startswith("(branch "):
        return calls(("u2", "book", {}))
    if any(block.type == "tool_result" for block in last.content):
        if "for Ann" in str(last):
            return calls(("u3", "branch_return", {"message": "Ann has **two** seats."}))
        return "All is booked."
    return in_branch()


async def test_a_waiting_branch_is_marked_and_its_questions_name_it(browser: Browser) -> None:
    app = make_chat_app(MemoryTrees(), MockModel(folding), [book, Folding()])
    async with serving(app) as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("book")
        ann, bo = opened.question("Ann"), opened.question("Bo")
        body, branch = page.locator("body"), page.get_by_role("region", name="Branch 1")
        for _ in range(2):
            await expect(ann).to_contain_text(
                re.compile("in the branch Seats for two people . ask_for#1")
            )
            await expect(bo).to_contain_text(
                re.compile("in the branch Seats for two people . ask_for#2")
            )
            await expect(branch).to_contain_text("waits for you")
            await expect(branch).to_contain_text("Seats for two people")
            await expect(page.locator("summary", has_text="branch_create")).to_contain_text(
                "waits for you"
            )
            row = page.get_by_role("treeitem", name=re.compile("^Branch"))
            await expect(row).to_contain_text("waits for you")
            await page.reload()
        for form in (ann, bo):
            await form.get_by_label("Seats", exact=True).fill("2")
            await form.get_by_role("button", name="Accept").click()
        await expect(opened.messages.get_by_text("All is booked.")).to_be_visible()
        for _ in range(2):
            await expect(branch.get_by_label("Conclusion")).to_have_text("Ann has two seats.")
            await expect(branch).to_contain_text("Branch 1 done")
            for instruction in ("OBEY", "branch_return with", "Do this subtask", "tokens, "):
                await expect(body).not_to_contain_text(instruction, use_inner_text=True)
            await page.reload()
        await opened.press(page.get_by_role("button", name="Open branch"))
        first = opened.messages.get_by_role("article", name="Branch")
        await expect(first).to_contain_text("Seats for two people")
        await expect(body).not_to_contain_text("Do this subtask", use_inner_text=True)


@LOOKS
async def test_an_audit_finds_nothing_serious_in_these_states(browser: Browser, look: Look) -> None:
    first = [ModelError("The model is overloaded.")]

    def reply(request: Any) -> Any:
        if first:
            return first.pop()
        return in_branch() if heard(request).endswith("book") else folding(request)

    app = make_chat_app(MemoryTrees(), MockModel(reply), [book, draw, wait, Folding()])
    async with serving(app) as address, audited(browser, address, look) as (opened, audit):
        page = opened.page
        await opened.say("hello")
        await expect(page.get_by_role("button", name="Retry")).to_be_visible()
        await audit("failed")
        await opened.say("/wait")
        await expect(opened.messages.get_by_text("It waits")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(opened.messages.get_by_text("Stopped by you.")).to_be_visible()
        await audit("stopped")
        await opened.say("/draw")
        await expect(opened.messages.get_by_role("img")).to_be_visible()
        await audit("drawn")
        await opened.say("book")
        await expect(opened.question("Ann")).to_be_visible()
        await audit("waiting-branch")
        await opened.say("never mind")
        await expect(opened.messages.get_by_text("All is booked.")).to_be_visible()
        branch = page.get_by_role("region", name="Branch 1")
        await expect(branch).to_contain_text("failed")
        await expect(branch).to_contain_text("its questions were left")
        await expect(page.locator("body")).not_to_contain_text("OBEY", use_inner_text=True)
        await audit("left")
