"""Shell completion of commands, options, and the files of a TARGET."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import Run

PRESS_TAB = """
source anabranch.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_anabranch
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_completes_commands_and_options(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    assert all(word in script for word in ("anabranch", "inspect", "answers"))


def test_completion_without_a_shell_requires_its_name(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undetected() -> str:
        from cyclopts.completion import ShellDetectionError

        raise ShellDetectionError

    monkeypatch.setattr("cyclopts.completion.detect_shell", undetected)
    assert "Name it: anabranch completion bash" in run.refusal("completion")


def test_bash_completes_files_and_folders_when_a_target_is_typed(tmp_path: Path, run: Run) -> None:
    (tmp_path / "anabranch.bash").write_text(run("completion", "bash").out)
    for name in ("tools.py", "more/inner.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    bash = shutil.which("bash") or "/bin/bash"

    def completed(*typed: str) -> set[str]:
        press = f"set -- {shlex.join(['anabranch', *typed])}\n{PRESS_TAB}"
        done = subprocess.run(
            [bash, "-c", press], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return set(done.stdout.split())

    for command in ("call", "list", "serve", "check", "dev", "web", "chat"):
        assert {"tools.py", "more"} <= completed(command, "")
    assert completed("calls", "replay", "to") == {"tools.py"}
    assert completed("call", "more/i") == {"more/inner.py"}
