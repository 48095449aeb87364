"""Several processes over one store: one run at a time in a thread, stopped and repeated from any
process.
"""

import asyncio
from contextlib import AsyncExitStack

from tests.chat.shared_runs import Held, process, until_said
from tests.chat.web import message, on_both_databases, run


@on_both_databases
async def test_one_run_at_a_time_over_all_processes(url: str) -> None:
    held = Held()
    async with process(url, replies=held.model()) as one, process(url) as two:
        await two.post("/threads", json={"id": "t1"})
        running = asyncio.create_task(run(one, message("first")))
        await until_said(two)
        assert (await two.get("/threads/t1/tree")).json()["running"] is True
        refused = await two.post("/agui", json=message("second", run="r2"))
        assert (refused.status_code, "is running" in refused.json()["error"]) == (409, True)
        held.resume.set()
        assert (await running)[-1]["outcome"] == {"type": "success"}
        assert (await two.get("/threads/t1/tree")).json()["running"] is False
        events = await run(two, message("second", run="r2"))
        assert "".join(each.get("delta", "") for each in events) == "You said second."


@on_both_databases
async def test_a_run_is_stopped_from_another_process(url: str) -> None:
    held = Held()
    async with process(url, replies=held.model()) as one, process(url) as two:
        await two.post("/threads", json={"id": "t1"})
        assert (await two.post("/threads/t1/stop", json={})).json() == {"stopped": False}
        running = asyncio.create_task(run(one, message("first")))
        await until_said(two)
        assert (await two.post("/threads/t1/stop", json={})).json() == {"stopped": True}
        events = await running
        assert events[-1]["outcome"] == {"type": "cancelled"}
        assert held.cancelled.is_set()
        nodes = (await two.get("/threads/t1/tree")).json()["nodes"]
        assert [node["content"][0]["text"] for node in nodes] == ["first", "Well, "]
        events = await run(two, message("second", run="r2"))
        assert events[-1]["outcome"] == {"type": "success"}  # an old request stops no later run


async def test_a_run_sent_to_all_processes_is_one_run(url: str) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(process(url)) for _ in range(3)]
        await clients[0].post("/threads", json={"id": "t1"})
        found = await asyncio.gather(*(run(client, message("hello")) for client in clients))
        assert found[0] == found[1] == found[2]
        nodes = (await clients[0].get("/threads/t1/tree")).json()["nodes"]
    assert [node["kind"] for node in nodes] == ["user", "assistant"]
