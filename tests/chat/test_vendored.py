"""The page's modules from other projects: each is listed with its hash, and no other host is used."""

import hashlib
import json
import re
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest

PAGE = files("anabranch.chat._web") / "page"
VENDOR = PAGE / "vendor"
LISTED: list[dict[str, str]] = json.loads((VENDOR / "VENDORED.json").read_text("utf-8"))["modules"]
OWN = [each for each in PAGE.iterdir() if each.name.endswith((".mjs", ".html", ".css", ".svg"))]


def test_every_module_is_listed() -> None:
    found = {each.name for each in VENDOR.iterdir() if each.name.endswith(".mjs")}
    assert found == {each["file"] for each in LISTED}


@pytest.mark.parametrize("module", LISTED, ids=[each["file"] for each in LISTED])
def test_a_vendored_module_equals_its_record(module: dict[str, str]) -> None:
    assert hashlib.sha256((VENDOR / module["file"]).read_bytes()).hexdigest() == module["sha256"]
    assert module["package"] in (VENDOR / "LICENSES.txt").read_text("utf-8")


@pytest.mark.parametrize("file", OWN, ids=[each.name for each in OWN])
def test_the_page_names_no_other_host(file: Traversable) -> None:
    text = file.read_text("utf-8")
    assert re.findall(r"https?://(?!www\.w3\.org/)[\w.-]+", text) == []


def test_the_page_never_makes_markup_of_text() -> None:
    unsafe = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    )
    for file in OWN:
        assert not unsafe.search(file.read_text("utf-8")), file.name
