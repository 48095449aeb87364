"""A process started from the preloaded one behaves like a process started in the ordinary way."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.preloaded import COLD, Preloaded, cold

PROGRAMS = {
    "arguments": "import sys; print(sys.argv, sys.path, __name__, sys.stdin.read())",
    "variables": "import os; print(os.environ['PYTEST_CURRENT_TEST'])",
    "folder": "import os; print(os.getcwd())",
    "streams": "import sys; print(sys.stdin, sys.stdout, sys.stderr, sys.stdout.line_buffering)",
    "status": "import sys; sys.exit(3)",
    "message": "import sys; sys.exit('no')",
    "failure": "import json; json.loads('{')",
    "interrupt": "raise KeyboardInterrupt",
    "thread": "import threading; threading.Thread(target=lambda: print('end')).start()",
    "at exit": "import atexit; atexit.register(print, 'left')",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "signals": "import signal; print({s: signal.getsignal(s) for s in (2, 13, 15)})",
    "session": "import os; print(os.getsid(0) == os.getpid())",
    "child": "import os, sys, subprocess; print(subprocess.run([sys.executable, '-c',"
    " f'import os; print(os.getppid() == {os.getpid()})'], capture_output=True).stdout)",
}


def run(*arguments: str, folder: Path, session: bool) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        input="typed",
        capture_output=True,
        text=True,
        check=False,
        start_new_session=session,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes from the preloaded process, in the long run as well."""
    monkeypatch.delenv(COLD, raising=False)


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_ends_as_in_a_new_process(program: str, session: bool, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(program)
    for arguments in (["script.py", "one"], ["-m", "script", "one"]):
        warm = run(*arguments, folder=tmp_path, session=session)
        with cold():
            assert run(*arguments, folder=tmp_path, session=session) == warm


def test_a_process_and_its_child_have_imported_the_command_line() -> None:
    imported = "import sys; print('anabranch.cli' in sys.modules)"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {imported!r}])"
    for program in (imported, nested):
        assert subprocess.check_output([sys.executable, "-c", program]) == b"True\n"


def test_a_signal_to_its_group_stops_a_process() -> None:
    program = [sys.executable, "-c", "print('here', flush=True); import time; time.sleep(600)"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


def test_a_program_forwards_a_signal_to_its_process(preloaded: Preloaded, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('here', flush=True)\n"
        "time.sleep(600)\n"
    )
    program = tmp_path / "program"
    program.write_text(preloaded.program("script.py"), encoding="utf-8")
    program.chmod(0o755)
    with subprocess.Popen([program], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.terminate()
        assert process.wait() == 7


def test_a_dead_preloaded_process_is_reported_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Preloaded({**os.environ, "PYTHONHOME": "/nowhere"})
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(RuntimeError, match="has died"), way.installed():
        subprocess.run([sys.executable, "-c", ""], check=False)


def test_the_next_test_can_start_processes_after_a_test_that_ended_during_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, ends = preloaded._number, [True, False, True]

    def number(connection: socket.socket) -> int:
        if ends and ends.pop(0):
            raise TimeoutError
        return answer(connection)

    monkeypatch.setattr(preloaded, "_number", number)
    with Preloaded(os.environ).installed():
        for _ in ("while the process imports", "while it starts another"):
            with pytest.raises(TimeoutError):
                subprocess.run([sys.executable, "-c", "print('late')"], check=True)
        assert subprocess.check_output([sys.executable, "-c", "print('here')"]) == b"here\n"
