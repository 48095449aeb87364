"""``anabranch web`` and ``anabranch worker`` in processes of their own, with DBOS between them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.chat.machines import check_branches
from tests.chat.test_web_killed import SCRIPT, TOOLS, until_ended
from tests.chat.web import events_in, message, numbers_of, types_of
from tests.postgres import Server


class Fleet:
    """Web processes and workers over the same store, with DBOS between them.

    Their model has a script, unless ``model`` is another.
    """

    def __init__(self, folder: Path, url: str, model: str = "") -> None:
        self.folder = folder
        self.url = url
        self.model = model or f"script:{folder / 'script.json'}"
        (folder / "tools.py").write_text(TOOLS)
        (folder / "script.json").write_text(json.dumps(SCRIPT))

    @asynccontextmanager
    async def _process(self, command: str, *options: str) -> AsyncGenerator[tuple[Process, str]]:
        """A process that has written a line; it is killed at the end, if it still runs."""
        given = ["--store", self.url, "--engine", "dbos"]
        given += ["--model", self.model, *options]
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "anabranch", command, str(self.folder / "tools.py")),
            *given,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert started.stderr is not None
            yield started, (await started.stderr.readline()).decode()
        finally:
            if started.returncode is None:
                started.kill()
            await started.communicate()

    @asynccontextmanager
    async def web(self) -> AsyncGenerator[tuple[Process, httpx2.AsyncClient]]:
        async with self._process("web", "--port", "0") as (process, line):
            address = line.rpartition(" ")[2].strip()
            async with httpx2.AsyncClient(base_url=address, timeout=120) as client:
                yield process, client

    @asynccontextmanager
    async def worker(self, concurrency: int = 4) -> AsyncGenerator[Process]:
        options = ("--concurrency", str(concurrency), "--grace", "120")
        async with self._process("worker", *options) as (process, line):
            assert line == f"The worker takes runs, {concurrency} at a time.\n"
            yield process

    def let_leases_run_out(self) -> None:
        """Give up what killed processes had a right to, as time would."""
        with psycopg.connect(self.url, autocommit=True) as store:
            store.execute("UPDATE anabranch_call SET leased_until = 1 WHERE owner IS NOT NULL")
            store.execute("UPDATE anabranch_run SET leased_until = 1 WHERE owner IS NOT NULL")

    def effects(self) -> list[str]:
        """What was done, in its order."""
        lines = (self.folder / "ledger").read_text().splitlines()
        return [line.partition(" ")[0] for line in lines]


async def test_a_run_outlives_its_web_process_and_its_worker(
    tmp_path: Path, postgres: Server
) -> None:
    """Both die in the middle of the run, which another worker ends."""
    fleet = Fleet(tmp_path, postgres.new_url())
    (fleet.folder / "before-book-Bonn").touch()  # there a worker dies
    async with fleet.web() as (_, page):
        await page.post("/threads", json={"id": "t1"})
        async with fleet.web() as (web, client), fleet.worker() as worker:
            accepted = {"Accept": "application/json"}
            response = await client.post("/agui", json=message("go"), headers=accepted)
            assert response.status_code == 202
            assert await worker.wait() == -signal.SIGKILL
            web.kill()
        fleet.let_leases_run_out()
        async with fleet.worker() as worker:
            sent = await until_ended(page, 0, 1)
            worker.terminate()
            assert await worker.wait() == 0
        nodes = (await page.get("/threads/t1/tree")).json()["nodes"]
    assert fleet.effects() == ["reserve-Bonn", "book-Bonn"]
    assert [node["kind"] for node in nodes] == ["user", "assistant", "results", "assistant"]
    assert nodes[-1]["content"][0]["text"] == "It is booked."
    assert numbers_of(sent) == list(range(1, len(sent) + 1))
    events = events_in("\n\n".join(sent))
    shown = [each["value"]["id"] for each in events if each.get("name") == "anabranch.node"]
    assert shown == [node["id"] for node in nodes]  # each once, in their order
    kinds = types_of(events)
    assert (kinds[0], kinds.count("RUN_STARTED"), kinds[-1]) == ("RUN_STARTED", 1, "RUN_FINISHED")


CITIES = ["Rome", "Oslo", "Bonn", "Graz"]
FORKING = [
    {"when": "branches completed", "text": "All is done."},
    {"when": "booked", "text": "It is booked.", "repeat": True},
    *(
        {
            "when": f"take {city}",
            "tool_calls": [{"name": "travel", "arguments": {"to": city, "asks": False}}],
        }
        for city in CITIES
    ),
    {
        "when": "go",
        "tool_calls": [
            {
                "name": "branch_self",
                "arguments": {"prompts": [f"take {c}" for c in CITIES], "allow_work": True},
            }
        ],
    },
]


@pytest.mark.long
async def test_a_run_in_branches_outlives_its_worker(tmp_path: Path, postgres: Server) -> None:
    """One worker dies in a tool of one branch; another continues all branches, and their turn."""
    fleet = Fleet(tmp_path, postgres.new_url())
    (tmp_path / "script.json").write_text(json.dumps(FORKING))
    (tmp_path / f"before-book-{CITIES[-1]}").touch()  # there a worker dies
    async with fleet.web() as (_, page):
        async with fleet.worker(1) as one:
            accepted = {"Accept": "application/json"}
            sent = await page.post("/agui", json=message("go"), headers=accepted)
            assert sent.status_code == 202
            assert await one.wait() == -signal.SIGKILL
        fleet.let_leases_run_out()
        async with fleet.worker(1):
            followed = await until_ended(page, 0, 1)
        nodes = (await page.get("/threads/t1/tree")).json()["nodes"]
    done = [f"{what}-{city}" for what in ("book", "reserve") for city in CITIES]
    assert sorted(fleet.effects()) == sorted(done)
    assert nodes[-1]["content"][0]["text"] == "All is done."
    events = events_in("\n\n".join(followed))
    assert "4/4 branches completed" in str(events)
    shown = [each["value"]["id"] for each in events if each.get("name") == "anabranch.node"]
    assert sorted(shown) == sorted(node["id"] for node in nodes)
    assert numbers_of(followed) == list(range(1, len(followed) + 1))
    check_branches(events)
