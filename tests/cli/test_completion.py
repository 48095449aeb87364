"""What a shell completes: commands, options, files of a TARGET, its tools and their parameters."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli import _completers, main

BIN = str(Path(sys.executable).parent)
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

    monkeypatch.setattr("cyclopts.completion.detect_shell", undetected)
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
    ],
    ids=["tool", "parameter"],
)
def test_bash_completes_tools_and_parameters(
    served: Path, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], wanted: str
) -> None:
    monkeypatch.setenv("PATH", BIN, prepend=":")
    words = shlex.join(["anabranch", "call", str(served), *typed])
    bash = shutil.which("bash") or "/bin/bash"
    done = subprocess.run(
        [bash, "-c", f"set -- {words}\n{PRESS_TAB}"], capture_output=True, text=True, check=True
    )
    assert wanted in done.stdout
