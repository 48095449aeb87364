"""``anabranch web`` and ``anabranch worker`` in processes of their own, with DBOS between them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.chat.fleet import Fleet, until_ended
from tests.chat.machines import check_branches
from tests.chat.web import events_in, message, numbers_of, types_of
from tests.postgres import Server


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
