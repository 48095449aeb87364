"""An agent of the OpenAI Agents SDK, with a scripted model."""

import json

from agents import Agent, Model, ModelResponse, Runner, RunState, Usage, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from playing import call_ids, play, raised
from tools import TOOLS

from anabranch.adapters.openai_agents import answer, as_tool, questions

set_tracing_disabled(True)


class Scripted(Model):
    def __init__(self, script):
        self.script = script
        self.read = {}

    async def get_response(self, *args, **asked):
        items = asked.get("input", args[1] if len(args) > 1 else [])
        items = [] if isinstance(items, str) else items
        self.read = {
            each["call_id"]: each["output"]
            for each in items
            if each.get("type") == "function_call_output"
        }
        calls = zip(call_ids(self.script), self.script["calls"], strict=True)
        output = [
            ResponseFunctionToolCall(
                type="function_call",
                call_id=name,
                name=call["name"],
                arguments=json.dumps(call["arguments"]),
            )
            for name, call in calls
        ]
        if self.read:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="last", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


async def drive(script, rounds):
    model = Scripted(script)
    caller = {"principal": lambda _: script["principal"]}
    tools = [as_tool(each, rounds, **caller) for each in TOOLS.values()]
    agent = Agent(name="agent", model=model, tools=tools)
    asked = {}
    if script["snapshot"]:
        state = await RunState.from_json(agent, script["snapshot"])
        try:
            asked = await answer(state, agent.tools, script["answers"], **caller)
        except Exception as error:  # noqa: BLE001 - it is reported
            return raised(error, state.to_json())
        if not asked:
            result = await Runner.run(agent, state)
            state = result.to_state()
    else:
        result = await Runner.run(agent, "Go.", context={})
        state = result.to_state()
    asked = asked or questions(state)
    snapshot = state.to_json() if asked else None
    return {"asked": asked, "snapshot": snapshot, "results": model.read, "notices": []}


play(drive, Scripted)
