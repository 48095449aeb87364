"""Builds and checks the packages of a release (``make release``). A maintainer publishes them by hand.

The public address of the project is one setting, ``address`` of ``[tool.anabranch-release]`` in
pyproject.toml. With an address, the packages have ``[project.urls]`` and absolute links in their
description. Without an address, they have neither.
"""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from tests.docs.pages import ROOT

BUILD = ROOT / "build" / "release"
TWINE = ROOT / ".venv-release" / "bin" / "twine"
LINK = re.compile(r"(?<=\]\()(?!https?://|#)([^)\s]+)")


def faults(version: str, changelog: str, fragments: list[str]) -> list[str]:
    """Return a sentence for each item that the release of ``version`` lacks."""
    found = []
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md has no dated heading. Write: ## {version} (YYYY-MM-DD)")
    found += [
        f"changelog.d/{name} is not in CHANGELOG.md. Run towncrier build." for name in fragments
    ]
    return found


def with_absolute_links(text: str, address: str) -> str:
    """Return the Markdown ``text`` with each relative link under ``address``; pictures point at the raw file."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if re.search(r"\.(png|svg)$", link[1]) else "blob"
        return f"{address}/{kind}/main/{link[1]}"

    return LINK.sub(absolute, text)


def with_urls(project: str, address: str) -> str:
    """Return the text of a pyproject.toml with the addresses of the project."""
    pages = {
        "Repository": "",
        "Documentation": "/blob/main/docs/README.md",
        "Changelog": "/blob/main/CHANGELOG.md",
    }
    pages |= {"Issues": "/issues"}
    lines = [f'{name} = "{address}{path}"' for name, path in pages.items()]
    return project + "\n[project.urls]\n" + "\n".join(lines) + "\n"


def stage(folder: Path, address: str) -> None:
    """Fill ``folder`` with the files of HEAD, and with the public address if there is one."""
    folder.mkdir(parents=True)
    archive = folder.parent / "source.tar"
    _run("git", "archive", "--output", str(archive), "HEAD", cwd=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    if address:
        for name, change in (("README.md", with_absolute_links), ("pyproject.toml", with_urls)):
            path = folder / name
            path.write_text(change(path.read_text(encoding="utf-8"), address), encoding="utf-8")


def build(source: Path) -> list[Path]:
    """Build both packages of ``source``, check them with twine, and return them."""
    uv = str(Path(sys.executable).parent / "uv")
    _run(uv, "build", "--quiet", "--offline", "--no-build-isolation", cwd=source)
    packages = sorted((source / "dist").glob("anabranch-*"))
    _run(str(TWINE), "check", "--strict", *map(str, packages), cwd=source)
    return packages


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True)


def main() -> None:
    """Stage, build and check the release of the version in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = settings["project"]["version"]
    address = settings["tool"]["anabranch-release"]["address"].rstrip("/")
    fragments = [path.name for path in (ROOT / "changelog.d").glob("*.*.md")]
    stage(BUILD / "source", address)
    for package in build(BUILD / "source"):
        sys.stdout.write(f"{package.relative_to(ROOT)}\n")
    missing = faults(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), fragments)
    if not address:
        missing.append(
            "pyproject.toml has no public address, so the description has relative links."
        )
    for sentence in missing:
        sys.stderr.write(f"not ready: {sentence}\n")
    if not missing:
        sys.stdout.write(f"ready: git tag v{version}, then publish the packages\n")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
