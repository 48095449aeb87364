"""Every example of README.md and docs/ is run, in order, page by page."""

from pathlib import Path

import pytest
from sybil import Example

from tests.docs.pages import PAGES, ROOT, parse, workplace
from tests.preloaded import Preloaded

EXAMPLES = [
    pytest.param(example, id=f"{page.relative_to(ROOT)}:{example.line}")
    for page in PAGES
    for example in parse(page).examples()
]


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    return {}


@pytest.fixture
def at_work(
    request: pytest.FixtureRequest,
    folders: dict[str, Path],
    preloaded: Preloaded,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run in the page's own folder, which holds the example tools."""
    page = request.getfixturevalue("example").path
    if page not in folders:
        command = preloaded.program("-m", "anabranch")
        folders[page] = workplace(tmp_path_factory.mktemp("page"), command)
    monkeypatch.chdir(folders[page])
    monkeypatch.syspath_prepend(str(folders[page]))


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_does_what_the_page_says(example: Example) -> None:
    example.evaluate()
