"""Ids of threads and nodes, which are drawn many at a time."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from anabranch.agents import random_names

FORKED = """
import os
from anabranch.agents import random_names
random_names("node")
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, random_names("node").encode())
    os._exit(0)
os.wait()
print(os.read(reader, 100).decode(), random_names("node"))
"""


def _some(_: int) -> list[str]:
    return [random_names("node") for _ in range(500)]


def test_no_two_names_are_the_same() -> None:
    with ThreadPoolExecutor(4) as threads:
        names = [name for drawn in threads.map(_some, range(8)) for name in drawn]
    assert len(set(names)) == len(names) == 4_000
    assert {len(name) for name in names} == {len("node_") + 12}


def test_a_forked_process_draws_names_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, check=True, text=True
    )
    mine, its = done.stdout.split()
    assert mine != its
