"""A server's own model in place of the client's, always or where the client lacks or refuses sampling."""

from typing import Any

import mcp_types as types
import pytest
from pydantic import BaseModel

from anabranch import BranchContext, StepFailed, tool
from anabranch.mcp import create_server
from anabranch.messages import SampleReply, SampleRequest, ToolSpec
from tests.mcp.harness import ERAS, HANDSHAKE, MODERN, Answers, connected, echo, serving, text_of
from tests.sagas.harness import call_saga, resume_saga


class Tip(BaseModel):
    tip: str


class OwnModel:
    """A model on the server; it replies with a ``Tip`` where the request has that schema."""

    def __init__(self) -> None:
        self.asked: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> SampleReply:
        self.asked.append(request)
        if request.tools:
            use = {
                "type": "tool_use",
                "id": "1",
                "name": request.tools[0].name,
                "input": {"tip": "own"},
            }
            return SampleReply.model_validate({"content": [use]})
        return SampleReply.model_validate({"content": "own"})


@tool
async def twice(ctx: BranchContext) -> list[str]:
    return [(await ctx.sample(prompt)).text for prompt in ("one", "two")]


@tool
async def typed(ctx: BranchContext) -> str:
    return (await ctx.sample("A tip", schema=Tip)).parsed.tip


@tool
async def with_tools(ctx: BranchContext) -> str:
    result = await ctx.sample(
        "Look", tools=[ToolSpec(name="look", input_schema={"type": "object"})]
    )
    return result.text or result.tool_calls[0].name


def refuse(_: types.CreateMessageRequestParams) -> types.ErrorData:
    return types.ErrorData(code=-1, message="no sampling consent")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_samples_is_asked_first(era: str) -> None:
    answers, model = Answers(sample=echo), OwnModel()
    server = serving(twice, sampler=model, sampler_mode="prefer-client")
    async with connected(server, era, answers) as client:
        result = await client.call_tool("twice")
    assert result.structured_content == {"result": ["<one>", "<two>"]}
    assert (model.asked, len(answers.prompted)) == ([], 2)


@pytest.mark.parametrize("era", ERAS)
async def test_the_servers_model_answers_for_a_client_that_does_not_sample(era: str) -> None:
    model = OwnModel()
    async with connected(
        serving(twice, sampler=model, sampler_mode="prefer-client"), era
    ) as client:
        result = await client.call_tool("twice")
    assert result.structured_content == {"result": ["own", "own"]}
    assert len(model.asked) == 2


async def test_the_servers_model_answers_samples_that_the_client_refuses() -> None:
    """A client of 2026-07-28 cannot answer with an error: an error ends its call."""
    answers, model = Answers(sample=refuse), OwnModel()
    server = serving(twice, sampler=model, sampler_mode="prefer-client")
    async with connected(server, HANDSHAKE, answers) as client:
        result = await client.call_tool("twice")
    assert result.structured_content == {"result": ["own", "own"]}
    assert (len(model.asked), len(answers.prompted)) == (2, 2)


async def test_a_refused_sample_with_a_schema_fits_the_servers_model() -> None:
    """The client lacks ``sampling.tools``; the server's model has it."""
    answers, model = Answers(sample=refuse, sampling_tools=False), OwnModel()
    server = serving(typed, sampler=model, sampler_mode="prefer-client")
    async with connected(server, HANDSHAKE, answers) as client:
        assert text_of(await client.call_tool("typed")) == "own"
    assert "JSON Schema" in (answers.prompted[0].system_prompt or "")
    assert [spec.name for spec in model.asked[0].tools or ()] == ["__schema__"]


async def test_replies_that_do_not_fit_are_counted_without_the_refusal() -> None:
    server = serving(typed, sampler=Useless(), sampler_mode="prefer-client")
    async with connected(server, HANDSHAKE, Answers(sample=refuse)) as client:
        result = await client.call_tool("typed")
    assert "did not fit after 3 attempts" in text_of(result)


class Useless:
    async def sample(self, request: SampleRequest) -> SampleReply:
        return SampleReply.model_validate({"content": "not JSON either"})


@pytest.mark.parametrize("era", ERAS)
async def test_tools_for_the_model_go_to_the_side_that_takes_them(era: str) -> None:
    answers, model = Answers(sample=echo, sampling_tools=False), OwnModel()
    server = serving(with_tools, sampler=model, sampler_mode="prefer-client")
    async with connected(server, era, answers) as client:
        assert text_of(await client.call_tool("with_tools")) == "look"
    assert (len(model.asked), answers.prompted) == (1, [])


async def test_an_error_of_the_servers_model_ends_the_sample() -> None:
    class Broken:
        async def sample(self, request: SampleRequest) -> SampleReply:
            raise RuntimeError("no credit")

    @tool
    async def asks(ctx: BranchContext) -> str:
        """Sample, and return the error."""
        try:
            return (await ctx.sample("Hello")).text
        except StepFailed as failed:
            return failed.error

    server = serving(asks, sampler=Broken(), sampler_mode="prefer-client")
    async with connected(server, HANDSHAKE, Answers(sample=refuse)) as client:
        assert text_of(await client.call_tool("asks")) == "RuntimeError"


async def test_a_clients_refusal_reaches_the_tool_when_the_server_has_no_model() -> None:
    server = serving(twice, sampler_mode="prefer-client")
    async with connected(server, HANDSHAKE, Answers(sample=refuse)) as client:
        assert "no sampling consent" in text_of(await client.call_tool("twice"))


async def test_a_replay_repeats_a_refusal() -> None:
    """A saga's client can answer a step with an error in any era."""

    @tool
    async def mixed(ctx: BranchContext) -> str:
        said = (await ctx.sample("Hello")).text
        return f"{said}, {(await ctx.elicit(Tip, 'A tip?')).action}"

    model = OwnModel()
    server = serving(mixed, sampler=model, sampler_mode="prefer-client")
    refused = {"stepId": "mixed/sample.1", "error": {"code": -1, "message": "no"}}
    answered = {"stepId": "mixed/elicit.1", "result": {"action": "decline"}}
    async with connected(server, MODERN, Answers(lambda _: None, echo)) as client:
        first = await call_saga(client, "mixed", {})
        second = await resume_saga(client, first["sagaToken"], refused)
        assert [step["stepId"] for step in second["steps"]] == ["mixed/elicit.1"]
        last = await resume_saga(client, second["sagaToken"], refused, answered)
    assert last["content"][0]["text"] == "own, decline"
    assert len(model.asked) == 1


def test_an_unknown_sampler_mode_is_refused() -> None:
    mode: Any = "client"
    with pytest.raises(ValueError, match="sampler_mode must be 'own' or 'prefer-client'"):
        create_server("test", [twice], sampler_mode=mode)
