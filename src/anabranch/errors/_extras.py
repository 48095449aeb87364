"""Packages of an extra: messages for a missing one, and commands to install it, without slow imports."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib import metadata

NAME = "anabranch"

typed_command: ContextVar[str] = ContextVar("typed_command", default="")
"""The running command, as the user typed it, without its arguments."""


class MissingExtraError(ImportError):
    """A package is missing; the message names the feature that needs it, and how to install it."""


@contextmanager
def needs_extra(
    extra: str,
    what: str,
    error: Callable[[str], Exception] = MissingExtraError,
    *,
    instead: str = "",
    is_named: bool = False,
) -> Generator[None]:
    """Raise an error that names the remedy if the block imports a missing package of ``extra``.

    ``what`` is the subject of the message, unless a command runs; ``is_named`` means that the user has
    typed ``what``. ``instead`` is a sentence about an alternative without the package.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or NAME).partition(".")[0]
        if package == NAME:  # no extra has a module of this library
            raise
        command = typed_command.get()
        subject = f"`{command}`" if command and not is_named else what
        sentences = [
            f"{subject} needs the package {package!r}, which is not installed.",
            *([instead] if instead else []),
            f"Install it: {install_command(extra)}",
        ]
        raise error(" ".join(sentences)) from missing


def install_command(extra: str) -> str:
    from importlib import metadata  # noqa: PLC0415 - slow, and for a missing package alone

    try:
        installed = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return join([*_installer(""), f"{NAME}[{extra}]"])
    installer = (installed.read_text("INSTALLER") or "").strip()
    return join([*_installer(installer), *_source(installed, extra)])


def _installer(name: str) -> list[str]:
    python = sys.executable or "python"
    if name != "uv":
        return [python, "-m", "pip", "install"]
    beside = Path(python).with_name("uv")  # uv may be installed in this environment alone
    program = "uv" if shutil.which("uv") or not beside.exists() else str(beside)
    return [program, "pip", "install", "--python", python]


def _source(installed: metadata.Distribution, extra: str) -> list[str]:
    origin = cast("dict[str, Any]", json.loads(installed.read_text("direct_url.json") or "{}"))
    url = str(origin.get("url", ""))
    if url.startswith("file:"):
        from urllib.parse import urlsplit  # noqa: PLC0415 - slow, and for a missing package alone
        from urllib.request import url2pathname  # noqa: PLC0415

        path = url2pathname(urlsplit(url).path)
        editable = cast("dict[str, Any]", origin.get("dir_info", {})).get("editable")
        return ["-e", f"{path}[{extra}]"] if editable else [f"{path}[{extra}]"]
    return [f"{NAME}[{extra}] @ {url}" if url else f"{NAME}[{extra}]"]


def find_framework(module: str, package: str, floor: str, what: str) -> Any:  # noqa: ANN401
    """Return ``module`` of a framework that the application itself depends on.

    ``floor`` is the oldest suitable release of ``package``, such as ``1.2``.
    """
    from importlib import metadata  # noqa: PLC0415 - slow, and for frameworks alone

    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        found = "which is not installed"
    else:
        if _numbers(version) >= _numbers(floor):
            return import_module(module)
        found = f"and {version} is installed"
    command = join([*_installer(""), f"{package}>={floor}"])
    raise MissingExtraError(
        f"{what} needs the package {package!r} in version {floor} or newer, {found}."
        f" Install it: {command}"
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:2]]
