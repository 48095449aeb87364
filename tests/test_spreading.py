"""If a pytest worker dies, only its current test fails; new workers run the other tests."""

import subprocess
import sys
from pathlib import Path

PLUGIN = """
from tests.spreading import Spread

def pytest_xdist_make_scheduler(config, log):
    return Spread(config, log)
"""

DYING = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    if number == 1:
        os._exit(1)
"""


def test_a_dying_worker_fails_one_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_dying.py").write_text(DYING)
    (tmp_path / "test_other.py").write_text("def test_it(): ...")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n2",
            "--max-worker-restart=1",
            "--config-file=pytest.ini",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "1 failed, 4 passed" in done.stdout, done.stdout
