"""The one browser test that the gate runs with the real command: a user picks a card."""

import re
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.interop.browsing import tab
from tests.interop.web_process import serving


async def test_a_user_sends_a_message_and_answers_the_tools_question(
    browser: Browser, tmp_path: Path
) -> None:
    """The command runs without a model, a network or arguments; the tab fails if the page reports a
    fault.
    """
    with serving(tmp_path, model=False) as (_, address):
        async with tab(browser, address) as opened:
            await opened.say("hello")
            form = opened.question(re.compile("Pick a card"))
            await form.get_by_label("Card number").fill("2")
            await form.get_by_role("button", name="Accept").click()
            await expect(opened.messages.get_by_text("That was one tool")).to_be_visible()
            await expect(form).to_have_count(0)
