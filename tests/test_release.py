"""The checks that ``make release`` runs before a release."""

import tomllib

from tests.docs.pages import ROOT
from tests.release import LINK, faults, with_absolute_links, with_urls

ADDRESS = "https://example.org/anabranch"


def test_a_release_is_refused_without_a_dated_note_or_with_remaining_fragments() -> None:
    dated = "# Changelog\n\n## 0.1.0 (2026-12-01)\n"
    assert faults("0.1.0", dated, []) == []
    assert len(faults("0.1.0", dated.replace("2026-12-01", "unreleased"), [])) == 1
    assert len(faults("0.1.0", dated, ["+a.fixed.md"])) == 1


def test_the_description_has_absolute_links_when_there_is_an_address() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    described = with_absolute_links(text, ADDRESS)
    assert LINK.search(described) is None
    assert f"({ADDRESS}/blob/main/docs/start.md)" in described
    assert f"({ADDRESS}/raw/main/docs/pictures/refund-light.png)" in described


def test_the_packages_have_urls_when_there_is_an_address() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    urls = tomllib.loads(with_urls(text, ADDRESS))["project"]["urls"]
    assert all(url.startswith(ADDRESS) for url in urls.values())
