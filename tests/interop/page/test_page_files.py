"""Files in the page: attached by the button, by pasting and by dropping; shown before and after a reload."""

import base64

from playwright.async_api import Browser, FilePayload, Page, expect

from anabranch.chat import make_chat_app
from anabranch.testing import MockModel
from tests.agents.memory import MemoryTrees
from tests.chat.web import serving
from tests.interop.browsing import tab
from tests.interop.page_scenes import picture

GIVE = """([kind, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([bytes], name, { type: "image/png" }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { clipboardData: given, ...options })
    : new DragEvent("drop", { dataTransfer: given, ...options });
  document.querySelector("textarea[aria-label=Message]").dispatchEvent(event);
}"""


async def give(page: Page, kind: str, name: str) -> None:
    await page.evaluate(GIVE, [kind, name, base64.b64encode(picture()).decode()])


async def test_files_are_attached_shown_sent_and_shown_after_a_reload(browser: Browser) -> None:
    model = MockModel(lambda request: f"{len(request.messages[-1].content)} blocks.")
    app = make_chat_app(MemoryTrees(), model)
    async with serving(app) as address, tab(browser, address) as opened:
        page = opened.page
        chosen = FilePayload(name="a.png", mimeType="image/png", buffer=picture())
        note = FilePayload(name="note.txt", mimeType="text/plain", buffer=b"Graz")
        await page.get_by_label("Files", exact=True).set_input_files([chosen, note])
        await give(page, "paste", "b.png")
        await give(page, "drop", "c.png")
        attached = page.get_by_role("list", name="Attached files")
        await expect(attached.get_by_role("listitem")).to_have_count(4)
        await attached.get_by_role("button", name="Remove c.png").click()
        await opened.say("Look")
        await expect(opened.messages.get_by_text("4 blocks.")).to_be_visible()
        await expect(attached).to_have_count(0)
        for _ in range(2):
            for name in ("a.png", "b.png"):
                image = opened.messages.get_by_role("img", name=name)
                await expect(image).to_have_js_property("naturalWidth", 4)
            await expect(opened.messages.get_by_role("link", name="note.txt")).to_be_visible()
            await page.reload()
        await opened.messages.get_by_role("button", name="Edit").click()
        await expect(attached.get_by_role("listitem")).to_have_count(3)
        await opened.say("Look again")
        await expect(opened.messages.get_by_text("4 blocks.")).to_be_visible()
