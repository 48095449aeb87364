"""The pictures of terminals show the commands' output, and load nothing."""

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.docs.pages import workplace
from tests.docs.terminal_pictures import PICTURES, SCENES, draw, refund


def words(svg: str) -> str:
    return " ".join("".join(ET.fromstring(svg).itertext()).replace("\xa0", " ").split())  # noqa: S314 - our own


def test_a_picture_of_a_terminal_has_the_question_and_the_result(tmp_path: Path) -> None:
    svg = draw(refund(workplace(tmp_path)), "anabranch")
    for shown in ("Refund 20.00 for order A1?", '"Paid 20.00 for order A1."'):
        assert shown in words(svg)


def test_stored_pictures_are_pictures_and_fetch_no_font() -> None:
    for name in SCENES:
        svg = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert "$ anabranch" in words(svg)
        assert "@font-face" not in svg
        assert "url(http" not in svg
