"""A hanging test ends and shows the stacks of its processes; a test that waits for a processor continues."""

import subprocess
import sys
from pathlib import Path

from tests.hangs import Waits

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


def run(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests with a timeout of one second."""
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / "test_hanging.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--timeout=1", "--config-file=pytest.ini"],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_a_hanging_test_ends_with_the_stacks_of_all_its_processes(tmp_path: Path) -> None:
    done = run(tmp_path, HANGING)
    assert done.returncode == 1
    assert "test_waits_for_a_child hangs:" in done.stdout
    assert "in wait_for_ever" in done.stdout


STARVED = """
import time
from tests import hangs

looks = []

class Waits:
    def seconds(self):
        looks.append(time.monotonic())
        return looks[-1] - looks[0]

hangs.Waits = Waits

def test_waits_for_a_processor():
    while not looks or looks[-1] - looks[0] < 2:
        time.sleep(0.01)
"""


def test_waiting_for_a_processor_extends_the_time_of_a_test(tmp_path: Path) -> None:
    assert run(tmp_path, STARVED).returncode == 0


def test_the_waits_of_threads_that_have_ended_still_count() -> None:
    seen: list[dict[Path, float]] = [{}, {Path("1"): 2.0}, {Path("2"): 3.0}]
    waits = Waits(lambda: seen.pop(0))
    assert [waits.seconds(), waits.seconds()] == [2.0, 5.0]
