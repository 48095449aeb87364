"""``anabranch completion``: a script by which a shell completes commands, options and files."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.completion import ShellDetectionError

from anabranch._terminal.exits import UsageError
from anabranch.cli._commands import app
from anabranch.cli._output import print_text

__all__ = ["completion_command"]

NO_SPACE = """
# After a folder or name= one goes on in the same word.
_anabranch_open_ended() {
  _anabranch
  [[ "${COMPREPLY[0]-}" == *[=/] ]] && compopt -o nospace
}
complete -F _anabranch_open_ended anabranch
"""
"""What the script for bash lacks."""


def completion_command(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"] | None,
        Parameter(help="The shell; by default the one that you are in."),
    ] = None,
    /,
) -> None:
    """Run the command."""
    try:
        script = app.generate_completion(shell=shell)
    except ShellDetectionError:
        raise UsageError(
            "The shell cannot be found out. Name it: anabranch completion bash, zsh, fish or powershell."
        ) from None
    print_text(script + NO_SPACE if "complete -F _anabranch anabranch" in script else script)
