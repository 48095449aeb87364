"""What a shell completes: commands, options, files of a TARGET, its tools and their parameters."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from anabranch.cli import _completers, main
from tests.preloaded import Preloaded

LISTING = """
@tool
async def list(ctx: BranchContext, folder: str) -> str:
    \"""Has the name of a command, as tools may.\"""
    return folder
"""
PRESS_TAB = """
source <(anabranch completion bash)
compopt() { echo "compopt $*"; }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_anabranch_open_ended
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What a script asks for at Tab: the candidates for the last word, without what they are."""
    assert main(["__complete", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line.partition("\t")[0] for line in lines if line and not line.startswith("\x1f")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_completes_commands_and_options(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("anabranch", "inspect", "answers"))


def test_without_a_shell_one_has_to_be_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def undetected() -> str:
        from cyclopts.completion import ShellDetectionError

        raise ShellDetectionError

    monkeypatch.setattr("anabranch.cli._completion_command.detect_shell", undetected)
    assert main(["completion"]) == 2
    assert "Name it: anabranch completion bash" in capsys.readouterr().err


def test_targets_are_completed_with_python_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("tools.py", "notes.txt", "more/inner.py", ".hidden/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    for command in ("call", "list", "serve", "check", "dev", "web", "chat"):
        assert completed(capsys, command, "") == ["tools.py", "more/"]
    assert completed(capsys, "calls", "replay", "--all", "") == ["tools.py", "more/"]
    assert completed(capsys, "call", "more/i") == ["more/inner.py"]
    assert completed(capsys, "call", "missing/") == []
    assert f"{tmp_path}/tools.py" in completed(capsys, "call", f"{tmp_path}/to")


@pytest.mark.parametrize("command", ["call", "inspect", "check"])
def test_tools_of_a_file_are_completed(
    capsys: pytest.CaptureFixture[str], served: Path, command: str
) -> None:
    assert {"greet", "count"} <= set(completed(capsys, command, str(served), ""))


def test_tools_of_a_running_server_are_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(_completers, "PATIENCE", 120)
    assert {"greet", "count"} <= set(completed(capsys, "call", "--token", "t" * 16, url, ""))
    assert completed(capsys, "call", url, "greet", "") == ["who=", "times="]


def test_parameters_that_are_given_are_not_completed_again(
    capsys: pytest.CaptureFixture[str], served: Path
) -> None:
    def after(*typed: str) -> list[str]:
        return completed(capsys, "call", str(served), *typed)

    assert after("greet", "") == ["who=", "times="]
    assert after("greet", "who=Ida", "") == ["times="]
    assert after("greet", "who", "=", "Ida", "") == ["times="]  # as bash splits it
    assert after("greet", "who", "=", "") == []
    assert after("greet", "who=") == []
    assert after("nothing", "") == []


@pytest.mark.parametrize(
    "target", ["missing.py", "http://127.0.0.1:9/mcp", "command:no-such-command", "broken.py"]
)
def test_a_target_that_offers_nothing_completes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("raise SystemExit(3)")
    assert completed(capsys, "call", target, "") == []


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (("",), "greet"),
        (("greet", ""), "compopt -o nospace\nwho="),
        (("list", ""), "folder="),
    ],
    ids=["tool", "parameter", "parameter of a tool with the name of a command"],
)
def test_bash_completes_tools_and_parameters(
    tmp_path: Path,
    served: Path,
    monkeypatch: pytest.MonkeyPatch,
    preloaded: Preloaded,
    typed: tuple[str, ...],
    wanted: str,
) -> None:
    program = tmp_path / "bin" / "anabranch"
    program.parent.mkdir()
    program.write_text(preloaded.program("-m", "anabranch"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    target = tmp_path / "more.py"
    target.write_text(f"from served import *\n{LISTING}")
    (tmp_path / "served.py").write_text(served.read_text("utf-8"))
    words = shlex.join(["anabranch", "call", str(target), *typed])
    bash = shutil.which("bash") or "/bin/bash"
    done = subprocess.run(
        [bash, "-c", f"set -- {words}\n{PRESS_TAB}"], capture_output=True, text=True, check=True
    )
    assert wanted in done.stdout


def script(capsys: pytest.CaptureFixture[str], shell: str) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_word_that_is_no_command_ends_the_command(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    repaired = script(capsys, shell)
    [added] = re.findall(r"(?:cmd_path\+=|set -a subcommands).*\n\s*(.*)\n\s*(.*)\n", repaired)
    assert added == ("else", "break")


def test_zsh_completes_by_a_script_that_is_sourced_and_by_one_in_a_folder_of_fpath(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The script for the folder is a file ``_anabranch``, the body of a function of that name."""
    *_, register, call = script(capsys, "zsh").strip().splitlines()
    assert register == "compdef _anabranch anabranch"
    assert call == '[[ "$funcstack[1]" == _anabranch ]] && _anabranch "$@"'


@pytest.mark.parametrize(
    ("shell", "files"),
    [
        ("bash", "complete -o default -F _anabranch_open_ended anabranch"),
        ("zsh", "(( ${#_cyc_vals} )) || _files"),
        ("fish", "or begin; __fish_complete_path (commandline -ct); return; end"),
    ],
)
def test_where_nothing_is_known_the_shell_completes_files(
    capsys: pytest.CaptureFixture[str], shell: str, files: str
) -> None:
    assert files in script(capsys, shell)
