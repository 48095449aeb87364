"""``anabranch completion``: a script by which a shell completes commands, options and files."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.completion import ShellDetectionError, detect_shell

from anabranch._terminal.exits import UsageError
from anabranch.cli._commands import app
from anabranch.cli._output import print_text

REPAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "bash": (
        (
            'cmd_path+=("$word")\n      fi',
            'cmd_path+=("$word")\n      else\n        break\n      fi',
        ),
        (
            "complete -F _anabranch anabranch",
            """# After a folder or name= one goes on in the same word.
_anabranch_open_ended() {
  _anabranch
  [[ "${COMPREPLY[0]-}" == *[=/] ]] && compopt -o nospace
}
complete -o default -F _anabranch_open_ended anabranch""",
        ),
    ),
    "zsh": (
        ("_cyclopts_", "_"),
        (
            "(( ${#_cyc_vals} )) && compadd -d _cyc_disp -a _cyc_vals",
            """(( ${#_cyc_vals} )) || _files
    local -a _cyc_end
    for _cyc_val in "${_cyc_vals[@]}"; do
      [[ "$_cyc_val" == *[=/] ]] && _cyc_end=(-S '') || _cyc_end=()
      compadd "${_cyc_end[@]}" -d _cyc_disp -- "$_cyc_val"
      shift _cyc_disp
    done""",
        ),
        (
            "\n}\n\n",
            """
}

# Sourced, it is registered; loaded from a folder of fpath, it is called.
compdef _anabranch anabranch
[[ "$funcstack[1]" == _anabranch ]] && _anabranch "$@"
""",
        ),
    ),
    "fish": (
        (
            "set -a subcommands $word\n            end",
            "set -a subcommands $word\n            else\n                break\n            end",
        ),
        (
            "set -q lines[1]; or return",
            "set -q lines[1]; or begin; __fish_complete_path (commandline -ct); return; end",
        ),
    ),
}
"""What the scripts lack, as replacements in their text, by shell.

A word that is no command ends the command: a tool may have the name of one. Where nothing is known, as
below ``~``, the shell completes files by itself.
"""


def completion_command(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"] | None,
        Parameter(help="The shell; by default the one that you are in."),
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
    script = app.generate_completion(shell=named)
    for lacking, repaired in REPAIRS.get(named, ()):
        script = script.replace(lacking, repaired)
    print_text(script)
