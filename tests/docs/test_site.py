"""The documentation site: it builds without a warning, has every page, and loads nothing from other
hosts.
"""

import html.parser
import re
from pathlib import Path

import pytest

from tests.api.reference import reference_pages
from tests.api.surface import public_modules
from tests.docs.pages import PAGES, ROOT
from tests.docs.site import REFERENCE, build, stage

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches by itself; the ``link`` of an address for people is no such thing."""


class Fetched(html.parser.HTMLParser):
    """Collects the URLs that a browser loads for a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADED and given.get("rel") not in {"canonical", "next", "prev"}:
            self.found.append(given.get(LOADED[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    stage(folder)
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


def test_every_page_is_on_the_site_and_in_its_navigation(site: Path) -> None:
    navigation = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        assert f'"{name}"' in navigation
        stem = name.removesuffix(".md")
        assert (site / f"{stem.removesuffix('README')}index.html").is_file() or (
            site / f"{stem}.html"
        ).is_file()


def test_the_index_for_models_links_to_every_page(site: Path) -> None:
    index = (site / "llms.txt").read_text(encoding="utf-8")
    linked = {site / target for target in re.findall(r"\]\(([^)]+)\)", index)}
    assert linked == {
        site / "docs" / f"{page.stem}.html" for page in PAGES if page.stem != "README"
    } - {site / "docs" / f"{page}.html" for page in ("decisions", "design")}
    assert all(target.is_file() for target in linked)
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert all(page.read_text(encoding="utf-8") in whole for page in PAGES if page.stem != "api")


def test_the_reference_has_every_public_module_and_name(site: Path) -> None:
    navigation = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for module in public_modules():
        assert f'"{REFERENCE}/{module.path}.md"' in navigation
        shown = (site / REFERENCE / f"{module.path}.html").read_text(encoding="utf-8")
        for name in module.exports or ():
            assert re.search(rf'<h2 id="[^"]*">{name}\b', shown), name


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        for address in Fetched(page.read_text(encoding="utf-8")).found:
            assert not address.startswith(("http", "//")), (page.name, address)


def test_styles_load_nothing_from_elsewhere(site: Path) -> None:
    for style in site.rglob("*.css"):
        for address in re.findall(r"url\(\"?'?([^)\"']+)", style.read_text(encoding="utf-8")):
            assert not address.startswith(("http", "//")), (style.name, address)


def test_the_search_finds_words_of_the_pages(site: Path) -> None:
    index = (site / "search.json").read_text(encoding="utf-8")
    assert "Nest fewer branches" in index
    assert "CapabilityError" in index


@pytest.mark.parametrize("link", ["gone.md", "#gone"])
def test_a_broken_link_fails_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n[a link]({link})\n", encoding="utf-8")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\n', encoding="utf-8")
    done = build(tmp_path)
    assert done.returncode != 0
    assert "does not exist" in done.stderr


def test_a_docstring_becomes_markdown() -> None:
    page = reference_pages()["anabranch.errors"]
    assert "    AnabranchError\n    ├── ToolError" in page
    assert "## StepFailed\n" in page
    assert "``" not in page.replace("```", "")
