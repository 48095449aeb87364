"""The completions of a shell beyond the words of the commands: files of a TARGET, its tools, their parameters.

A target that is code is loaded for it; of a server at a URL its tools are asked, for a moment. A
command that starts a server is not run: only a call does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch._terminal.exits import CommandError

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from anabranch.cli._tool_summaries import ToolSummary

PATIENCE = 2.0
"""Seconds that a person who has pressed Tab is made to wait for a server."""


def python_files(context: CompletionContext) -> list[str]:
    """Return the Python files and folders that a TARGET which is being typed may begin with."""
    folder, _, begun = context.incomplete.rpartition("/")
    place = Path(folder or ("/" if context.incomplete.startswith("/") else "."))
    prefix = context.incomplete.removesuffix(begun)
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return []
    folders = [f"{prefix}{each.name}/" for each in entries if each.is_dir()]
    files = [f"{prefix}{each.name}" for each in entries if each.suffix == ".py"]
    return [*files, *(each for each in folders if not Path(each).name.startswith("."))]


def tool_names(context: CompletionContext) -> list[tuple[str, str]]:
    """Return the tools of the TARGET that was typed, with what each does."""
    return [(each.name, each.headline) for each in _tools(context)]


def tool_arguments(context: CompletionContext) -> list[tuple[str, str]]:
    """Return ``name=`` for the parameters of the TOOL that were not given yet, with their types.

    bash makes words of their own of ``=`` and what follows it: there, no name is completed.
    """
    from anabranch.cli._tool_summaries import schema_words  # noqa: PLC0415 - slow to import

    typed: Sequence[str] = context["values"].raw_tokens
    if "=" in context.incomplete or typed[-1:] == ("=",):
        return []
    given = {each.partition("=")[0] for each in typed}
    chosen = context["tool"].raw
    return [
        (f"{name}=", schema_words(schema, each.parameters.get("$defs", {})))
        for each in _tools(context)
        if each.name == chosen
        for name, schema in each.parameters.get("properties", {}).items()
        if name not in given
    ]


def _tools(context: CompletionContext) -> list[ToolSummary]:
    from anyio import move_on_after, run  # noqa: PLC0415 - slow to import

    from anabranch.cli._targets import is_server, is_url  # noqa: PLC0415
    from anabranch.cli._tool_summaries import summaries_of  # noqa: PLC0415

    target = context["target"].raw or ""
    if is_server(target) and not is_url(target):
        return []
    found: list[ToolSummary] = []

    async def look() -> None:
        headers = _headers(context) if is_url(target) else {}
        with move_on_after(PATIENCE):
            found.extend(await summaries_of(target, headers))

    try:
        run(look)
    except CommandError:  # said when the command is run; Tab has no place for it
        return []
    return found


def _headers(context: CompletionContext) -> dict[str, str]:
    """Return the headers that were typed, for a server that asks for them."""
    from anabranch.cli._http_tokens import headers_of  # noqa: PLC0415

    token, *_ = (*_typed(context, "--token"), None)
    return headers_of(token, _typed(context, "--header"))


def _typed(context: CompletionContext, option: str) -> tuple[str, ...]:
    """Return what was typed for an option, which the command may not have."""
    try:
        return context[option].raw_tokens
    except KeyError:
        return ()
