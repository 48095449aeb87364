"""An agent of Pydantic AI, with a scripted model."""

import json

from playing import SAMPLED, call_ids, play
from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from tools import TOOLS

from anabranch.adapters._paused_call import without_state
from anabranch.adapters.pydantic_ai import as_tool, questions, results

REQUESTS = TypeAdapter(DeferredToolRequests)


def model_of(script, read=None):
    read = {} if read is None else read

    def model(messages, info):
        if not info.function_tools:
            return ModelResponse([TextPart(SAMPLED)])
        parts = [part for message in messages for part in message.parts]
        returned = [part for part in parts if isinstance(part, ToolReturnPart)]
        read.update({part.tool_call_id: part.model_response_str() for part in returned})
        if read:
            return ModelResponse([TextPart("done")])
        calls = zip(call_ids(script), script["calls"], strict=True)
        return ModelResponse([ToolCallPart(c["name"], c["arguments"], i) for i, c in calls])

    async def stream(messages, info):
        for part in model(messages, info).parts:
            yield part.content if isinstance(part, TextPart) else deltas(part)

    return FunctionModel(model, stream_function=stream)


async def drive(script, rounds):
    read, notices = {}, []

    async def listen(ctx, events):
        async for event in events:
            if getattr(event, "name", "") == "anabranch_notice":
                notices.append(event.message)

    tools = [as_tool(t, rounds, principal=lambda _: script["principal"]) for t in TOOLS.values()]
    agent = Agent(model_of(script, read), tools=tools, output_type=[str, DeferredToolRequests])
    given = {"user_prompt": "Go.", "conversation_id": script["conversation"]}
    if script["snapshot"]:
        history, requests = json.loads(script["snapshot"])
        given = {
            "message_history": ModelMessagesTypeAdapter.validate_json(history),
            "deferred_tool_results": results(REQUESTS.validate_json(requests), script["answers"]),
        }
    result = await agent.run(**given, event_stream_handler=listen)
    if not isinstance(result.output, DeferredToolRequests):
        return {"asked": {}, "snapshot": None, "results": read, "notices": notices}
    asked = {call: without_state(result.output.metadata[call]) for call in questions(result.output)}
    history = result.all_messages_json().decode()
    snapshot = json.dumps([history, REQUESTS.dump_json(result.output).decode()])
    return {"asked": asked, "snapshot": snapshot, "results": {}, "notices": notices}


def deltas(part):
    place = int(part.tool_call_id.removeprefix("call-"))
    return {
        place: DeltaToolCall(
            name=part.tool_name, json_args=json.dumps(part.args), tool_call_id=part.tool_call_id
        )
    }


play(drive, model_of)
