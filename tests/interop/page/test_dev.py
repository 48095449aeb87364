"""``anabranch dev`` in a browser: a tool is called by a form, answered, edited, and called again."""

import re
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from tests.cli.developing import developing, write
from tests.interop.browsing import FITS, NARROW, WIDE, audited

TOOLS = '''
from typing import Literal

from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, tool


class Passenger(BaseModel):
    name: str
    age: int = 30


class Seats(BaseModel):
    seats: int = Field(title="Seats", ge=1)


@tool
async def book(
    ctx: BranchContext,
    flight: str,
    passengers: list[Passenger],
    diet: Literal["none", "vegan"] = "none",
    price: int | None = None,
    window: bool = True,
) -> str:
    """Book a flight."""
    answer = await ctx.elicit(Seats, "How many seats?")
    seats = answer.content.seats if isinstance(answer, Accepted) else 0
    return f"booked {seats} on {flight}: {passengers[0].name} {diet} {price} {window}"
'''


async def test_a_tool_is_called_answered_edited_and_called_again(
    browser: Browser, tmp_path: Path
) -> None:
    file = write(tmp_path / "tools.py", TOOLS)
    with developing(tmp_path) as address:
        async with audited(browser, address, WIDE) as (opened, audit):
            page = opened.page
            await page.get_by_role("button", name="/book").click()
            form = page.get_by_role("region", name="Welcome")
            await expect(form.get_by_label("Window")).to_be_checked()
            await form.get_by_role("button", name="Call").click()
            await expect(form.get_by_label("Flight")).to_have_attribute("aria-invalid", "true")
            await form.get_by_label("Flight").fill("AB1")
            passengers = form.get_by_label("Passengers")
            await passengers.fill("Ann")
            await form.get_by_role("button", name="Call").click()
            await expect(passengers).to_have_attribute("aria-invalid", "true")
            await passengers.fill('[{"name": "Ann"}]')
            await form.get_by_label("Diet").select_option("vegan")
            await audit("dev-form")
            await page.set_viewport_size(NARROW["viewport"])
            await opened.until(FITS)
            await page.set_viewport_size(WIDE["viewport"])
            await form.get_by_role("button", name="Call").click()
            seats = opened.question("How many seats?")
            await seats.get_by_label("Seats").fill("2")
            await seats.get_by_role("button", name="Accept").click()
            returned = "on AB1: Ann vegan None True"
            await expect(page.get_by_label("Result")).to_have_text(f"booked 2 {returned}")

            write(file, TOOLS.replace('return f"booked', 'return f"reserved {unknown'))
            broken = page.get_by_role("alert")
            await expect(broken).to_contain_text("SyntaxError")
            await expect(broken).to_contain_text(re.compile(r'tools.py", line \d+'))
            await opened.screen("dev-error")
            write(file, TOOLS.replace('return f"booked', 'return f"reserved'))
            await expect(broken).to_have_count(0)
            await opened.press(page.get_by_role("button", name="Call again"))
            await seats.get_by_label("Seats").fill("3")
            await seats.get_by_role("button", name="Accept").click()
            again = "reserved 3 on AB1: Ann vegan None True"
            await expect(page.get_by_label("Result")).to_have_text(again)
            await expect(page.get_by_label("Versions").first).to_contain_text("2 / 2")

            await _look_at_the_first_call(page, returned)


async def _look_at_the_first_call(page: Page, returned: str) -> None:
    await page.get_by_role("link", name="Calls").click()
    await page.get_by_role("button", name=re.compile("book")).last.click()
    await expect(page.get_by_label("Returned")).to_contain_text(returned)
    await expect(page.get_by_label("Rounds")).to_be_visible()
