"""Packages that are installed with an extra: what to say if one is missing, and how to add it.

The command fits the way in which anabranch was installed: by pip or by uv, from an index, or from a
checkout. Standard library only.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from shlex import join
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

__all__ = ["MissingExtraError", "install_command", "needs_extra"]

NAME = "anabranch"


class MissingExtraError(ImportError):
    """A package is missing; the message says what needs it, and how to install it."""


@contextmanager
def needs_extra(
    extra: str,
    what: str,
    error: Callable[[str], Exception] = MissingExtraError,
    *,
    instead: str = "",
) -> Generator[None]:
    """Import packages of ``extra`` inside; if one is missing, say what needs it and how to get it.

    Args:
        extra: its name.
        what: what needs it, as the subject of a sentence.
        error: makes the exception to raise.
        instead: a sentence about what can be done without it.

    Raises:
        Exception: what ``error`` makes.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or NAME).partition(".")[0]
        if package == NAME:  # no extra has a module of ours
            raise
        sentences = [
            f"{what} needs the package {package!r}, which is not installed.",
            *([instead] if instead else []),
            f"Install it: {install_command(extra)}",
        ]
        raise error(" ".join(sentences)) from missing


def install_command(extra: str) -> str:
    """Return a shell command that adds ``extra`` to the environment of this process."""
    try:
        installed = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return join([*_installer(""), f"{NAME}[{extra}]"])
    installer = (installed.read_text("INSTALLER") or "").strip()
    return join([*_installer(installer), *_source(installed, extra)])


def _installer(name: str) -> list[str]:
    python = sys.executable or "python"
    if name != "uv":
        return [python, "-m", "pip", "install"]
    beside = Path(python).with_name("uv")  # it may be installed in this environment alone
    program = "uv" if shutil.which("uv") or not beside.exists() else str(beside)
    return [program, "pip", "install", "--python", python]


def _source(installed: metadata.Distribution, extra: str) -> list[str]:
    """Return what to install: again from where it was installed, a folder or another URL."""
    origin = cast("dict[str, Any]", json.loads(installed.read_text("direct_url.json") or "{}"))
    url = str(origin.get("url", ""))
    if url.startswith("file:"):
        path = url2pathname(urlsplit(url).path)
        editable = cast("dict[str, Any]", origin.get("dir_info", {})).get("editable")
        return ["-e", f"{path}[{extra}]"] if editable else [f"{path}[{extra}]"]
    return [f"{NAME}[{extra}] @ {url}" if url else f"{NAME}[{extra}]"]
