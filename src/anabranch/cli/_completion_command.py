"""``anabranch completion``: the script by which a shell completes commands, options and files."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.completion import ShellDetectionError, detect_shell

from anabranch._terminal import UsageError
from anabranch.cli._commands import app
from anabranch.cli._output import print_text


def completion_command(
    shell: Annotated[
        Literal["zsh", "bash", "fish", "powershell"] | None,
        Parameter(help="Shell. Default: the shell that runs the command."),
    ] = None,
    /,
) -> None:
    """Run the command."""
    try:
        named = shell or detect_shell()
    except ShellDetectionError:
        raise UsageError(
            "The shell cannot be found out. Name it: anabranch completion bash, zsh, fish or powershell."
        ) from None
    print_text(app.generate_completion(shell=named))
