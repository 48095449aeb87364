"""A thread's tree as the page receives it: tokens and costs of its nodes, and labels."""

import base64
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import TurnLimits
from anabranch.chat._web.event_mapping import NODE
from anabranch.messages import ImageBlock, SampleReply, SampleRequest, TextBlock, Usage
from anabranch.models import ModelError
from anabranch.testing import MockModel, calls
from anabranch.tree import media_places
from tests.chat.web import browsing, message, run

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def priced(request: Any) -> SampleReply:
    del request
    usage = Usage(input_tokens=30, output_tokens=20)
    return SampleReply(content=(TextBlock(text="Hello."),), model="m-1", usage=usage)


async def test_a_node_has_its_tokens_and_cost_in_the_tree_and_in_its_event() -> None:
    limits = TurnLimits(price=lambda _, used: used.total_tokens / 100)
    async with browsing(replies=MockModel(priced), limits=limits) as client:
        events = await run(client, message("Hi"))
        tree = (await client.get("/threads/t1/tree")).json()
    happened = [event["value"] for event in events if event.get("name") == NODE]
    for node in (happened[-1], tree["nodes"][-1]):
        assert node["usage"]["input_tokens"] == 30
        assert (node["cost"], node["model"]) == (0.5, "m-1")


async def test_a_cut_reply_is_marked_in_the_tree_and_in_its_event() -> None:
    cut = SampleReply(content=(TextBlock(text="One"),), model="m", stop_reason="maxTokens")
    async with browsing(replies=MockModel(lambda _: cut)) as client:
        events = await run(client, message("Count"))
        tree = (await client.get("/threads/t1/tree")).json()
    happened = [event["value"] for event in events if event.get("name") == NODE]
    for node in (happened[-1], tree["nodes"][-1]):
        assert node["state"] == "cut off at the limit of tokens"
    assert "state" not in tree["nodes"][0]


@tool
async def look(_: BranchContext) -> list[ImageBlock]:
    return [ImageBlock(data=PIXEL, mime_type="image/png")]


async def test_a_reply_names_the_image_that_its_provider_refused() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if media_places(request.messages):
            raise ModelError("This model takes text only.", refused=True)
        return "A hill." if len(request.messages) > 1 else calls(("use", "look", {}))

    async with browsing(tools=[look], replies=MockModel(decide)) as client:
        await run(client, message("Look"))
        tree = (await client.get("/threads/t1/tree")).json()
    [_, _, results, reply] = tree["nodes"]
    assert results["content"][0]["content"][0]["type"] == "file"
    line = "(an image that the model's provider refused: image/png)"
    assert reply["refused"] == [{"node": results["id"], "block": 0, "part": 0, "line": line}]


async def test_a_label_is_set_and_removed() -> None:
    async with browsing() as client:
        await run(client, message("Hi"))
        node = (await client.get("/threads/t1/tree")).json()["nodes"][0]["id"]
        for name in ("here", "a/b c?"):
            body = {"node_id": node, "label": name}
            assert (await client.post("/threads/t1/labels", json=body)).status_code == 200
        assert (await client.delete("/threads/t1/labels/a%2Fb%20c%3F")).status_code == 200
        refs = (await client.get("/threads/t1/tree")).json()["refs"]
    assert refs.keys() == {"head", "here"}


@pytest.mark.parametrize(("label", "status"), [("head", 422), ("unknown", 404)])
async def test_a_name_that_is_no_label_is_not_removed(label: str, status: int) -> None:
    async with browsing() as client:
        await run(client, message("Hi"))
        response = await client.delete(f"/threads/t1/labels/{label}")
        assert response.status_code == status
        assert response.json()["error"].endswith(".")
        assert "head" in (await client.get("/threads/t1/tree")).json()["refs"]
