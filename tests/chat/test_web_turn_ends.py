"""Turns without a reply: the tree has their errors and stops, and a retry repeats no finished work."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx2

from anabranch import BranchContext, tool
from anabranch.agents import Agent
from anabranch.chat._web.run_input import node_id
from anabranch.models import ModelError
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel, calls
from anabranch.tree import Surroundings
from tests.agents.memory import MemoryTrees
from tests.chat.shared_runs import events_until
from tests.chat.web import browsing, message, resume, run

BUSY = "The model is overloaded."


class Flaky:
    """A model that fails until the test lets it succeed; and a tool that counts its calls."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.model = MockModel(lambda _: self.replies.pop(0))
        self.counted = 0

        @tool
        async def count(ctx: BranchContext) -> int:
            del ctx
            self.counted += 1
            return self.counted

        self.tool = count


async def tree_of(client: httpx2.AsyncClient) -> dict[str, Any]:
    return dict((await client.get("/threads/t1/tree")).json())


async def retried(client: httpx2.AsyncClient, node_id: str) -> dict[str, Any]:
    """Retry, wait for the end of the run, and return the tree."""
    before = (await tree_of(client))["position"]
    response = await client.post("/threads/t1/retry", json={"node_id": node_id})
    assert response.status_code == 202, response.text
    await ended(client, before)
    return await tree_of(client)


async def ended(client: httpx2.AsyncClient, after: str) -> None:
    async with client.stream("GET", f"/threads/t1/events?after={after}") as events:
        async for line in events.aiter_lines():
            if '"RUN_FINISHED"' in line or '"RUN_ERROR"' in line:
                return


async def test_an_error_is_in_the_tree_until_a_retry_has_its_reply() -> None:
    flaky = Flaky(ModelError(BUSY), ModelError("tried again"), "Hello.", "Good bye.")
    async with browsing(replies=flaky.model) as client:
        events = await run(client, message("hello"))
        assert (events[-1]["type"], events[-1]["message"]) == ("RUN_ERROR", BUSY)
        tree = await tree_of(client)
        [said] = tree["nodes"]
        assert tree["ends"] == {said["id"]: {"error": BUSY}}
        tree = await retried(client, said["id"])
        assert tree["ends"] == {said["id"]: {"error": "tried again"}}
        tree = await retried(client, said["id"])
        assert [each["kind"] for each in tree["nodes"]] == ["user", "assistant"]
        await run(client, message("and now", run="r9"))
    # No model receives the node of an end.
    assert [each.text for each in flaky.model.requests[-1].messages] == [
        "hello",
        "Hello.",
        "and now",
    ]


async def test_a_retry_continues_after_finished_work() -> None:
    flaky = Flaky(calls(("use_1", "count", {})), ModelError(BUSY), "One.")
    async with browsing(replies=flaky.model, tools=[flaky.tool]) as client:
        await run(client, message("count"))
        [(at, end)] = (await tree_of(client))["ends"].items()
        assert end == {"error": BUSY}
        tree = await retried(client, at)
        assert [each["kind"] for each in tree["nodes"]][-2:] == ["results", "assistant"]
    assert flaky.counted == 1


async def test_a_reply_that_broke_off_is_another_version_than_the_retry() -> None:
    async def breaking() -> Any:
        yield "Once upon"
        raise ModelError(BUSY)

    flaky = Flaky(breaking(), "Once upon a time.")
    async with browsing(replies=flaky.model) as client:
        await run(client, message("tell"))
        tree = await tree_of(client)
        said, part = tree["nodes"]
        assert (part["stop_reason"], tree["ends"]) == ("error", {part["id"]: {"error": BUSY}})
        tree = await retried(client, part["id"])
        assert [each["parent_id"] for each in tree["nodes"][1:]] == [said["id"], said["id"]]
        assert tree["refs"]["head"] == tree["nodes"][-1]["id"]


async def test_a_stop_is_no_error_and_a_retry_calls_the_users_tool_again() -> None:
    began = asyncio.Semaphore(0)

    @tool
    async def watch(ctx: BranchContext) -> str:
        del ctx
        began.release()
        await asyncio.Event().wait()
        return "never"

    async with browsing(tools=[watch]) as client:
        running = asyncio.create_task(run(client, message("/watch")))
        await began.acquire()
        await client.post("/threads/t1/stop", json={})
        events = await running
        assert events[-1]["outcome"]["type"] == "cancelled"
        [result] = [each for each in events if each["type"] == "TOOL_CALL_RESULT"]
        assert result["metadata"] == {"toolName": "watch", "isError": True, "isInterrupted": True}
        tree = await tree_of(client)
        said, caller = tree["nodes"]
        assert (caller["by"], tree["ends"]) == ("user", {caller["id"]: {"error": None}})
        await client.post("/threads/t1/retry", json={"node_id": caller["id"]})
        await began.acquire()
        await client.post("/threads/t1/stop", json={})
        tree = await tree_of(client)
        assert [each["parent_id"] for each in tree["nodes"][1:]] == [said["id"]] * 2
        assert tree["ends"] == {tree["nodes"][-1]["id"]: {"error": None}}
        # On the path of a message below it, the call has no result.
        await run(client, message("so?", run="r9"))
        *_, after, _ = (await tree_of(client))["nodes"]
        assert len(after["interrupted"]) == 1


async def test_a_retry_calls_only_the_tool_that_was_stopped() -> None:
    began, returned, paid = asyncio.Semaphore(0), asyncio.Event(), list[str]()

    @tool
    async def charge(ctx: BranchContext) -> str:
        del ctx
        paid.append("10 EUR")
        returned.set()
        return "paid"

    @tool
    async def watch(ctx: BranchContext) -> str:
        del ctx
        await returned.wait()
        began.release()
        await asyncio.Event().wait()
        return "never"

    flaky = Flaky(calls(("use_1", "charge", {}), ("use_2", "watch", {})), "Paid, and not watched.")
    async with browsing(replies=flaky.model, tools=[charge, watch]) as client:
        running = asyncio.create_task(run(client, message("charge and watch")))
        await began.acquire()
        await events_until(client, "TOOL_CALL_RESULT")
        await client.post("/threads/t1/stop", json={})
        await running
        [at] = (await tree_of(client))["ends"]
        tree = await retried(client, at)
    assert [each["kind"] for each in tree["nodes"]] == ["user", "assistant", "results", "assistant"]
    assert paid == ["10 EUR"]


async def test_a_retry_is_refused_except_at_the_end_of_a_turn() -> None:
    flaky = Flaky("Hello.")
    async with browsing(replies=flaky.model) as client:
        await run(client, message("hello"))
        for node_id in ("nothing", (await tree_of(client))["nodes"][-1]["id"]):
            response = await client.post("/threads/t1/retry", json={"node_id": node_id})
            assert response.status_code == 422
            refused = f"The node {node_id!r} does not end a turn without a reply."
            assert response.json()["error"].startswith(refused)


async def test_a_skipped_question_has_no_answer_of_the_user() -> None:
    async with browsing() as client:
        await run(client, message("reserve"))
        await run(client, message("instead", run="r2"))
        [left] = [each for each in (await tree_of(client))["nodes"] if each["kind"] == "answer"]
        assert left["content"] == [{"type": "text", "text": "left unanswered"}]
        assert (left["left"], "action" in left) == (True, False)
        results = [block for each in (await tree_of(client))["nodes"] for block in each["content"]]
        assert "No seat: cancel" in str(results)
        await run(client, message("reserve", run="r3"))
        [question] = (await client.get("/threads/t1/pending")).json()
        entry = {"interruptId": question["interrupt_id"], "status": "cancelled"}
        await run(client, resume(entry, run="r4"))
        answers = [each for each in (await tree_of(client))["nodes"] if each["kind"] == "answer"]
        assert (answers[-1]["action"], answers[-1]["question"]) == (
            "cancel",
            question["interrupt_id"],
        )


async def test_a_message_that_is_stopped_before_a_worker_has_it_is_kept_for_a_retry() -> None:
    async with browsing(concurrency=None) as client:
        accept = {"accept": "application/json"}
        await client.post("/agui", json=message("hello"), headers=accept)
        assert (await client.post("/threads/t1/stop", json={})).json() == {"stopped": True}
        tree = await tree_of(client)
        [said] = tree["nodes"]
        assert (said["content"][0]["text"], tree["refs"]["head"]) == ("hello", said["id"])
        assert tree["ends"] == {said["id"]: {"error": None}}
        async with client.stream("GET", "/threads/t1/events?after=0") as events:
            async for line in events.aiter_lines():
                if said["id"] in line:  # an open page shows it
                    break
        retry = await client.post("/threads/t1/retry", json={"node_id": said["id"]})
        assert retry.status_code == 202


async def test_a_message_that_is_stopped_before_a_worker_has_it_leaves_no_question() -> None:
    trees = MemoryTrees()
    async with browsing(store=trees) as client:
        await run(client, message("reserve"))
    async with browsing(store=trees, concurrency=None) as client:
        before = await tree_of(client)
        accept = {"accept": "application/json"}
        await client.post("/agui", json=message("instead", run="r2"), headers=accept)
        await client.post("/threads/t1/stop", json={})
        after = await tree_of(client)
        assert (after["nodes"], after["ends"]) == (before["nodes"], {})
        assert len((await client.get("/threads/t1/pending")).json()) == 1


async def test_a_stop_after_a_complete_reply_does_not_mark_the_turn_as_stopped() -> None:
    trees = MemoryTrees()
    async with browsing(store=trees, concurrency=None) as client:
        accept = {"accept": "application/json"}
        await client.post("/agui", json=message("hello"), headers=accept)
        agent = Agent(
            trees, MockModel(lambda _: "Hello.")
        )  # a worker that has not reported the end
        said = agent.dependencies.node("t1", None, "user", "hello")
        [said] = await agent.add([replace(said, id=node_id("t1", "r1"))])
        await agent.resume(said)
        await client.post("/threads/t1/stop", json={})
        tree = await tree_of(client)
        assert [each["kind"] for each in tree["nodes"]] == ["user", "assistant"]
        assert tree["ends"] == {}


async def test_a_retry_calls_the_users_tool_that_was_stopped_before_it_started() -> None:
    paid = list[str]()

    @tool
    async def charge(ctx: BranchContext) -> str:
        del ctx
        paid.append("10 EUR")
        return "paid"

    trees = MemoryTrees()
    async with browsing(store=trees, tools=[charge], concurrency=None) as client:
        accept = {"accept": "application/json"}
        await client.post("/agui", json=message("/charge"), headers=accept)
        agent = Agent(trees, MockModel(lambda _: ""), tools=[charge])  # a worker that was stopped
        said = agent.dependencies.node("t1", None, "user", "/charge")
        [said] = await agent.add([replace(said, id=node_id("t1", "r1"))])
        use = calls(("use_1", "charge", {})).content
        by = {"by": "user"}
        await agent.add([agent.dependencies.node("t1", said.id, "assistant", use, data=by)])
        await agent.interrupt_tools("t1")
        await client.post("/threads/t1/stop", json={})
    async with browsing(store=trees, tools=[charge]) as client:
        [at] = (await tree_of(client))["ends"]
        assert paid == []
        tree = await retried(client, at)
    assert [each["kind"] for each in tree["nodes"]][-2:] == ["assistant", "results"]
    assert paid == ["10 EUR"]


async def test_a_stopped_answer_is_used_by_the_next_process(url: str) -> None:
    trees = open_tree_store(url)
    async with browsing(store=trees) as client:
        await run(client, message("reserve"))
    async with browsing(store=trees, concurrency=None) as client:
        [question] = (await client.get("/threads/t1/pending")).json()
        content = {"row": 3, "note": ""}
        entry = {"interruptId": question["interrupt_id"], "status": "resolved", "payload": content}
        body, accept = resume(entry), {"accept": "application/json"}
        assert (await client.post("/agui", json=body, headers=accept)).status_code == 202
        await client.post("/threads/t1/stop", json={})
        stopped = await tree_of(client)
    async with browsing(store=trees) as client:
        await ended(client, stopped["position"])
        tree = await tree_of(client)
    await trees.close()
    assert "Row 3 on AB1" in str(tree["nodes"])
    assert [each["kind"] for each in tree["nodes"]].count("question") == 1


async def test_a_turn_is_tried_again_in_one_of_two_processes() -> None:
    """Each process found the end before it started the retry."""
    trees = Passing()
    flaky = Flaky(ModelError(BUSY), "Hello.", "Once more.")
    async with browsing(store=trees, replies=flaky.model) as one, browsing(store=trees) as two:
        await run(one, message("hello"))
        [at] = (await tree_of(one))["ends"]
        trees.now = lambda: retried(one, at)
        late = await two.post("/threads/t1/retry", json={"node_id": at})
        assert late.status_code == 422
        tree = await tree_of(two)
        assert ([each["kind"] for each in tree["nodes"]], tree["running"]) == (
            ["user", "assistant"],
            False,
        )


class Passing(MemoryTrees):
    """A store that runs a function once, after the surroundings of a node were read."""

    now: Callable[[], Awaitable[object]] | None = None

    async def around(self, thread_id: str, node_id: str | None = None) -> Surroundings | None:
        found, now, self.now = await super().around(thread_id, node_id), self.now, None
        if now is not None:
            await now()
        return found
