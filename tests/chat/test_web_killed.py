"""``anabranch web`` is killed while a tool asks or works, and the next process continues."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chat.fleet import SCRIPT, TOOLS, until_ended
from tests.chat.machines import check_branches
from tests.chat.web import events_in, message, numbers_of, types_of
from tests.patience import PATIENCE


class Web:
    """A folder with the tools, the script and the store of a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/chat.db"
        (folder / "tools.py").write_text(TOOLS)
        (folder / "script.json").write_text(json.dumps(SCRIPT))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[tuple[Any, httpx2.AsyncClient]]:
        """Serve the folder in a process, which is killed at the end if it still runs."""
        command = [sys.executable, "-m", "anabranch", "web", str(self.folder / "tools.py")]
        command += ["--port", "0", "--store", self.url]
        command += ["--model", f"script:{self.folder / 'script.json'}"]
        started = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        assert started.stderr is not None
        try:
            address = (await started.stderr.readline()).decode().rpartition(" ")[2].strip()
            async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client:
                yield started, client
        finally:
            if started.returncode is None:
                started.kill()
            await started.communicate()  # reads stderr to its end, and closes it

    def let_leases_run_out(self) -> None:
        """End the leases of the killed process, as the passing of time would."""
        with closing(sqlite3.connect(self.folder / "chat.db")) as store, store:
            store.execute("UPDATE anabranch_call SET leased_until = 0 WHERE owner IS NOT NULL")
            store.execute("UPDATE anabranch_run SET due = 0 WHERE owner IS NOT NULL")

    def effects(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in (self.folder / "ledger").read_text().splitlines():
            found.setdefault(line.split(" ")[0], []).append(line.split(" ")[1])
        return found


async def killed(web: Web, when: str, said: str) -> None:
    """Run until the process dies in a tool."""
    (web.folder / when).touch()
    async with web.running() as (process, client):
        with suppress(httpx2.TransportError):
            await client.post("/agui", json=message(said))
        await process.wait()
    web.let_leases_run_out()


@pytest.mark.parametrize(
    ("when", "what"), [("before", "book"), pytest.param("after", "reserve", marks=pytest.mark.long)]
)
async def test_an_interrupted_tool_continues_by_itself(
    tmp_path: Path, when: str, what: str
) -> None:
    """An effect without a record runs again, under its key: this gap is the only one.

    The interrupted round runs again, and a notice that it had shown is shown once.
    """
    web = Web(tmp_path)
    await killed(web, f"{when}-{what}-Bonn", "go")
    async with web.running() as (_, client):
        sent = await until_ended(client, 0, 1)
        nodes = (await client.get("/threads/t1/tree")).json()["nodes"]
    assert [node["kind"] for node in nodes] == ["user", "assistant", "results", "assistant"]
    assert nodes[-1]["content"][0]["text"] == "It is booked."
    made = web.effects()
    counts = {"reserve-Bonn": 1, "book-Bonn": 1} | ({f"{what}-Bonn": 2} if when == "after" else {})
    assert {each: len(keys) for each, keys in made.items()} == counts
    assert all(len(set(keys)) == 1 for keys in made.values())
    assert numbers_of(sent) == list(range(1, len(sent) + 1))
    events = events_in("\n\n".join(sent))
    shown = [each["value"]["id"] for each in events if each.get("name") == "anabranch.node"]
    assert shown == [node["id"] for node in nodes]  # each once, in order
    notices = [
        each["value"]["message"] for each in events if each.get("name") == "anabranch.notice"
    ]
    assert notices == ["reserved Bonn"]
    assert [types_of(events).count(f"TOOL_CALL_{each}") for each in ("START", "RESULT")] == [1, 1]
    assert types_of(events)[-1] == "RUN_FINISHED"


@pytest.mark.long
async def test_a_branch_in_which_the_process_was_killed_continues(tmp_path: Path) -> None:
    web = Web(tmp_path)
    await killed(web, "before-book-Bonn", "alone")
    async with web.running() as (_, client):
        sent = await until_ended(client, 0, 1)
        tree = (await client.get("/threads/t1/tree")).json()
    assert {each: len(keys) for each, keys in web.effects().items()} == {
        "reserve-Bonn": 1,
        "book-Bonn": 1,
    }
    [start] = [node for node in tree["nodes"] if node["kind"] == "branch"]
    assert start["branch"]["state"] == "done"
    assert start["branch"]["conclusion"] == "It is booked."
    [head] = [node for node in tree["nodes"] if node["id"] == tree["refs"]["head"]]
    assert head["content"][0]["text"] == "All is done."
    check_branches(events_in("\n\n".join(sent)))
