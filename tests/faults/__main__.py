"""``python -m tests.faults --seed 7 --store URL --runs N`` kills workers, and reports the outcome.

With ``--chaos kill stop restart cut clocks``, the harness starts a separate database. It kills and
suspends workers, restarts the database, cuts the connection to it, and sets the clocks apart. With
``--chat`` in addition, the calls run in a chat, with two web processes and four workers.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio

from tests.faults import chaos
from tests.faults.chaos import EVERY, own_server, plan_in_chat, plan_of
from tests.faults.runs import Report, Trial, plan
from tests.faults.stages import IN_CHAT, OVER_MCP


async def disturb(
    folder: Path, url: str, *, seed: str, number: int | None, speed: float, at_once: int
) -> Report:
    """Run the runs of ``seed``; ``folder`` is empty."""
    return await Trial(folder, url, speed=speed, at_once=at_once).go(plan(seed, number))


def _chaos(folder: Path, given: argparse.Namespace) -> Report:
    with own_server() as server:
        stage = IN_CHAT if given.chat else OVER_MCP
        runs = (plan_in_chat if given.chat else plan_of)(given.seed, given.runs or 200)
        work = partial(chaos.disturb, folder, server, runs, given.chaos, stage=stage)
        return anyio.run(partial(work, speed=given.speed, at_once=given.at_once, times=given.times))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--store", help="a new store; a SQLite file of its own by default")
    parser.add_argument("--runs", type=int, help="all places, and all at once, by default")
    parser.add_argument("--speed", type=float, default=10.0, help="of the workers' clock")
    parser.add_argument("--at-once", type=int, default=8, help="calls that run at the same time")
    parser.add_argument("--chaos", nargs="*", choices=EVERY, help="on a Postgres of its own")
    parser.add_argument(
        "--chat", action="store_true", help="with --chaos: two web processes and four workers"
    )
    parser.add_argument("--times", type=int, default=3, help="how often each of these comes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        url = given.store or f"sqlite:///{folder}/calls.db"
        sys.stdout.write(f"seed {given.seed}\n")
        sys.stdout.flush()
        begun = time.monotonic()
        work = partial(disturb, folder, url, seed=given.seed, number=given.runs)
        if given.chaos:
            report = _chaos(folder, given)
        else:
            report = anyio.run(partial(work, speed=given.speed, at_once=given.at_once))
    sys.stdout.write(
        f"{report.runs} runs, {report.calls} calls, {report.effects} effects, {report.undos} undos;"
        f" {len(report.killed)} kills, {report.repeated} requests repeated, {report.again} effects or"
        f" undos repeated in the gap; {time.monotonic() - begun:.0f} s\n"
    )
    for wrong in report.wrong:
        sys.stdout.write(f"WRONG {wrong}\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
