"""The pictures of terminals are of what the commands write, and load nothing."""

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.docs.pages import workplace
from tests.docs.terminal_pictures import PICTURES, SCENES, call, draw


def words(svg: str) -> str:
    return " ".join("".join(ET.fromstring(svg).itertext()).replace("\xa0", " ").split())  # noqa: S314 - our own


def test_the_readmes_tool_is_asked_in_a_terminal_and_drawn(tmp_path: Path) -> None:
    svg = draw(call(workplace(tmp_path)), "anabranch")
    for shown in ("Where do you want to spend 2 days?", "Vienna", '"VIE-2: Walk the Ring."'):
        assert shown in words(svg)


def test_stored_pictures_are_pictures_and_fetch_no_font() -> None:
    for name in SCENES:
        svg = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert "$ anabranch" in words(svg)
        assert "@font-face" not in svg
        assert "url(http" not in svg
