"""``anabranch dev`` in a process, and source files that change while it runs."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE


def write(file: Path, text: str) -> Path:
    """Write a file with a modification time that it has never had."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    new = file.with_suffix(".new")
    new.write_text(text)
    os.utime(new, ns=(before + 10**9, before + 10**9))
    return new.replace(file)  # in one step: the command would load a half-written file


@contextmanager
def developing(folder: Path, *options: str) -> Generator[str]:
    """Run the real command, and yield the address of its page."""
    command = [sys.executable, "-m", "anabranch", "dev", "tools.py", "--no-open", "--port", "0"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
    with subprocess.Popen(
        [*command, *options], cwd=folder, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        found = re.search(r"at (http://\S+/)", process.stderr.readline())
        assert found is not None
        try:
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
