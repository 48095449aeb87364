"""Runs over AG-UI: messages, questions, answers, skipped questions, and answers after a restart."""

import asyncio
from typing import Any

import httpx2
import pytest

from anabranch.chat._web.conversations import Conversations
from anabranch.messages import SampleRequest
from anabranch.testing import MockModel
from anabranch.tree import Thread
from tests.agents.memory import MemoryTrees
from tests.chat.web import browsing, message, model, resume, run, types_of


def interrupt_in(events: list[dict[str, Any]]) -> dict[str, Any]:
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    found: list[dict[str, Any]] = outcome["interrupts"]
    assert len(found) == 1
    return found[0]


async def test_a_message_is_answered_as_it_arrives() -> None:
    async with browsing() as client:
        events = await run(client, message("hello"))
    assert list(dict.fromkeys(types_of(events))) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert "".join(each.get("delta", "") for each in events) == "You said hello."
    assert events[-1]["outcome"] == {"type": "success"}


async def test_a_question_ends_the_run_and_its_answer_begins_another() -> None:
    async with browsing() as client:
        first = await run(client, message("reserve"))
        interrupt = interrupt_in(first)
        assert interrupt["message"] == "Which seat?"
        assert interrupt["responseSchema"]["properties"]["row"]["maximum"] == 30
        metadata = interrupt["metadata"]
        assert (metadata["toolName"], metadata["key"], metadata["seq"]) == ("reserve", "seat", 0)
        assert metadata["params"] == {"flight": "AB1"}
        assert metadata["context"] == {"plane": "A320"}
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        second = await run(client, resume(entry))
    assert types_of(second)[0] == "RUN_STARTED"
    [result] = [each for each in second if each["type"] == "TOOL_CALL_RESULT"]
    assert result["content"] == "Row 3 on AB1"
    assert second[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        ({"status": "cancelled"}, "No seat: cancel"),
        ({"status": "cancelled", "metadata": {"action": "decline"}}, "No seat: decline"),
    ],
)
async def test_a_question_can_be_declined_and_cancelled(entry: dict[str, Any], result: str) -> None:
    async with browsing() as client:
        interrupt = interrupt_in(await run(client, message("reserve")))
        events = await run(client, resume({"interruptId": interrupt["id"], **entry}))
    [found] = [each["content"] for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert found == result


async def test_another_message_cancels_the_question_and_is_answered() -> None:
    async with browsing() as client:
        interrupt = interrupt_in(await run(client, message("reserve")))
        events = await run(client, message("never mind", run="r2"))
        assert "".join(each.get("delta", "") for each in events) == "You said never mind."
        tree = (await client.get("/threads/t1/tree")).json()
        assert (await client.get("/threads/t1/pending")).json() == []
        late = {"interrupt_id": interrupt["id"], "action": "accept", "content": {"row": 1}}
        response = await client.post("/threads/t1/answers", json=late)
        assert (response.status_code, response.json()["reason"]) == (409, "answered")
    kinds = [node["kind"] for node in tree["nodes"]]
    assert kinds == ["user", "assistant", "question", "answer", "results", "user", "assistant"]
    parents = {node["id"]: node["parent_id"] for node in tree["nodes"]}
    assert list(parents.values())[1:] == list(parents)[:-1]  # one path


async def test_an_answer_alone_resumes_the_tool() -> None:
    async with browsing() as client:
        interrupt = interrupt_in(await run(client, message("reserve")))
        answer = {"interrupt_id": interrupt["id"], "action": "accept", "content": {"row": 7}}
        position = (await client.get("/threads/t1/tree")).json()["position"]
        assert (await client.post("/threads/t1/answers", json=answer)).status_code == 200
        await ended(client, position)
        assert (await client.post("/threads/t1/answers", json=answer)).status_code == 200
        other = {**answer, "content": {"row": 8}}
        assert (await client.post("/threads/t1/answers", json=other)).status_code == 409
        tree = (await client.get("/threads/t1/tree")).json()
    assert [node["kind"] for node in tree["nodes"]].count("answer") == 1
    assert "Row 7 on AB1" in str(tree)


async def ended(client: httpx2.AsyncClient, position: str) -> None:
    """Wait until the turn that runs after ``position`` has ended."""
    async with client.stream("GET", f"/threads/t1/events?after={position}") as response:
        async for line in response.aiter_lines():
            if '"type":"RUN_FINISHED"' in line and '"success"' in line:
                return


async def test_an_answer_that_does_not_fit_is_refused_field_by_field() -> None:
    async with browsing() as client:
        interrupt = interrupt_in(await run(client, message("reserve")))
        answer: dict[str, Any] = {
            "interrupt_id": interrupt["id"],
            "action": "accept",
            "content": {"row": 99, "note": "x" * 21},
        }
        response = await client.post("/threads/t1/answers", json=answer)
        assert response.status_code == 422
        assert {each["field"] for each in response.json()["errors"]} == {"row", "note"}
        answer["content"] = {}
        response = await client.post("/threads/t1/answers", json=answer)
        assert [each["field"] for each in response.json()["errors"]] == ["row"]
        assert len((await client.get("/threads/t1/pending")).json()) == 1


async def test_a_question_is_answered_after_a_restart() -> None:
    store = MemoryTrees()
    async with browsing(store=store) as client:
        interrupt = interrupt_in(await run(client, message("reserve")))
    async with browsing(store=store) as client:
        [pending] = (await client.get("/threads/t1/pending")).json()
        assert pending["interrupt_id"] == interrupt["id"]
        assert pending["id"]["call_id"] == interrupt["metadata"]["callId"]
        assert pending["schema"] == interrupt["responseSchema"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        events = await run(client, resume(entry))
    assert [each["content"] for each in events if each["type"] == "TOOL_CALL_RESULT"] == [
        "Row 3 on AB1"
    ]


async def test_a_tool_is_called_without_a_model() -> None:
    async with browsing() as client:
        interrupt = interrupt_in(await run(client, message("/reserve flight=LH2")))
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 1}}
        events = await run(client, resume(entry))
        assert "Row 1 on LH2" in str(events)
        assert "TEXT_MESSAGE_START" not in types_of(events)


async def test_a_message_can_follow_any_node() -> None:
    async with browsing() as client:
        await run(client, message("one"))
        tree = (await client.get("/threads/t1/tree")).json()
        first = tree["nodes"][0]["id"]
        await run(client, message("two", run="r2", forwardedProps={"headNodeId": first}))
        tree = (await client.get("/threads/t1/tree")).json()
    [two] = [node for node in tree["nodes"] if node["content"][0]["text"] == "two"]
    assert two["parent_id"] == first


async def test_a_message_is_answered_anew_beside_itself_when_a_client_regenerates_its_reply() -> (
    None
):
    """The client repeats its messages up to the user's last one, under a new run."""
    requests: list[SampleRequest] = []

    def decide(request: SampleRequest) -> str:
        requests.append(request)
        return f"Reply {len(requests)}."

    transcript = [{"id": f"m{at}", "role": "user", "content": f"Say {at}."} for at in (1, 2)]
    async with browsing(replies=MockModel(decide)) as client:
        for number, messages in enumerate((transcript[:1], transcript, transcript), 1):
            await run(client, {**message("", run=f"r{number}"), "messages": messages})
        tree = (await client.get("/threads/t1/tree")).json()
        first, reply, said, _, again, last = tree["nodes"]
        assert said["parent_id"] == again["parent_id"] == reply["id"]
        assert (again["content"], last["parent_id"]) == (said["content"], again["id"])
        assert tree["refs"]["head"] == last["id"]
        assert requests[2].messages == requests[1].messages

        edited = {"id": "m2", "role": "user", "content": "Say something else."}
        await run(client, {**message("", run="r4"), "messages": [edited]})
        await run(client, {**message("", run="r5"), "messages": transcript[:1]})
        nodes = (await client.get("/threads/t1/tree")).json()["nodes"]
        assert [each["parent_id"] for each in nodes[6::2]] == [last["id"], first["parent_id"]]


async def test_simultaneous_requests_find_the_same_conversation() -> None:
    """A page asks for the tree and the open questions at the same time."""

    class Waiting(MemoryTrees):
        async def thread(self, thread_id: str) -> Thread | None:
            await asyncio.sleep(0)  # a pause like that of a database
            return await super().thread(thread_id)

    conversations = Conversations(Waiting(), model())
    thread = await conversations.agent.begin()
    first, second = await asyncio.gather(*(conversations.find(thread.id, None) for _ in range(2)))
    assert first is second is await conversations.find(thread.id, None)
    assert await conversations.find("none", None) is None


async def test_an_answer_that_is_sent_again_under_its_run_is_the_same_run() -> None:
    async with browsing() as client:
        interrupt = interrupt_in(await run(client, message("reserve")))
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        first = await run(client, resume(entry))
        assert await run(client, resume(entry)) == first
        assert types_of(await run(client, resume(entry, run="r3"))) == [
            "RUN_STARTED",
            "RUN_FINISHED",
        ]


async def test_a_repeated_run_is_refused_with_another_message() -> None:
    async with browsing() as client:
        first = await run(client, message("one"))
        assert await run(client, message("one")) == first
        for other in (message("two"), message("one ")):
            refused = await client.post("/agui", json=other)
            assert refused.status_code == 409
            assert refused.json()["error"] == (
                "The runId 'r1' names an earlier run of this conversation, which began with other"
                " input. Send the message under a new runId."
            )
        interrupt = interrupt_in(await run(client, message("reserve", run="r2")))
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        await run(client, resume(entry, run="r3"))
        assert (await client.post("/agui", json=message("three", run="r3"))).status_code == 409
        tree = (await client.get("/threads/t1/tree")).json()
    said = [each["content"][0]["text"] for each in tree["nodes"] if each["kind"] == "user"]
    assert said == ["one", "reserve"]


REFUSED_AT_FIRST: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    (" \n", {}),
    ("/reserve flight", {}),
    ("/reserve flights=AB1", {}),
    ("hello", {"forwardedProps": {"headNodeId": "node_of_none"}}),
    ("hello", {"forwardedProps": {"headNodeId": 7}}),
    ("hello", {"runId": ""}),
    ("hello", {"messages": []}),
]


async def test_a_first_message_that_is_refused_begins_no_conversation() -> None:
    async with browsing() as client:
        for text, more in REFUSED_AT_FIRST:
            refused = await client.post("/agui", json={**message(text), **more})
            assert refused.status_code == 422, (text, more)
        assert (await client.get("/threads")).json() == []


async def test_two_simultaneous_choices_of_one_id_make_two_threads() -> None:
    class Waiting(MemoryTrees):
        async def create_thread(self, thread: Thread) -> None:
            await asyncio.sleep(0)  # both have found that the id is free
            await super().create_thread(thread)

    conversations = Conversations(Waiting(), model())
    wanted = [Thread("t1", 1.0, owner=owner) for owner in ("ann", "bo", "bo")]
    found = await asyncio.gather(*map(conversations.begin, wanted))
    assert [each is not None for each in found] == [True, True, False]
    for owner, each in zip(("ann", "bo"), found, strict=False):
        assert await conversations.find("t1", owner) is each
    assert len(await conversations.agent.store.threads(9)) == 2
