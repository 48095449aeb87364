"""A test that hangs ends, and shows where each of its processes is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLUGIN = """
from tests.hangs import Hangs

def pytest_configure(config):
    config.pluginmanager.register(Hangs())
"""

HANGING = """
import subprocess, sys

CHILD = '''
import time
def wait_for_ever():
    print("up", flush=True)
    time.sleep(600)
wait_for_ever()
'''

def test_waits_for_a_child():
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        child.wait()
"""


def test_a_hang_ends_with_the_stacks_of_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--timeout=1", "--config-file=pytest.ini"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "test_waits_for_a_child hangs:" in done.stdout
    assert "in wait_for_ever" in done.stdout
