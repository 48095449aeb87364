"""A person's consent to what cannot be taken back: asked in a terminal, or given by ``--yes``."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from anabranch._terminal.exits import FailedError, UsageError

Yes: TypeAlias = Annotated[
    bool, Parameter(negative=(), help="Do not ask. Without a terminal, it has to be given.")
]


async def confirm(losses: str, question: str, otherwise: str, *, yes: bool) -> None:
    """Show what is lost, and ask; return if it may be.

    Raises:
        UsageError: there is no terminal to ask at.
        FailedError: the person has changed their mind; it says ``otherwise``.
    """
    if yes:
        return
    from anabranch._terminal.console import Console  # noqa: PLC0415 - most commands ask no one
    from anabranch._terminal.forms import ask_consent  # noqa: PLC0415

    console = Console()
    if not console.interactive:
        act = question.removesuffix("?").lower()
        raise UsageError(f"{losses} There is no terminal to ask at: give --yes to {act}.")
    async with console.question():
        console.show(losses)
        if (await ask_consent(question)).action != "accept":
            raise FailedError(otherwise)
