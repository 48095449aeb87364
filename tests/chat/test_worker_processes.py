"""``anabranch web`` and ``anabranch worker`` in separate processes, with DBOS between them."""

import signal
from pathlib import Path

from tests.chat.fleet import Fleet, until_ended
from tests.chat.web import events_in, message, numbers_of, types_of
from tests.postgres import Server


async def test_a_run_outlives_its_web_process_and_worker(tmp_path: Path, postgres: Server) -> None:
    """Both processes die in the middle of the run, and another worker ends the run."""
    fleet = Fleet(tmp_path, postgres.new_url())
    (fleet.folder / "before-book-Bonn").touch()  # a worker dies there
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
    assert shown == [node["id"] for node in nodes]  # each once, in order
    kinds = types_of(events)
    assert (kinds[0], kinds.count("RUN_STARTED"), kinds[-1]) == ("RUN_STARTED", 1, "RUN_FINISHED")
