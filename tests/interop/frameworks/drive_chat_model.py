"""A chat model of LangChain answers a sample with tools; run where LangChain is installed."""

import asyncio

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from anabranch import ToolError
from anabranch.adapters.langchain import ChatModelSampler
from anabranch.messages import SampleRequest, Usage

seen = []


class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, *, tool_choice):
        seen.append((tools, tool_choice))
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        seen.append((messages, stop, options))
        used = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        calls = [{"id": "1", "name": "look", "args": {"at": "x"}}]
        reply = AIMessage("I look.", tool_calls=calls, usage_metadata=used)
        return ChatResult(generations=[ChatGeneration(message=reply)])


async def check():
    use = {"type": "tool_use", "id": "0", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "0", "content": "seen"}
    request = {
        "messages": [
            {"role": "user", "content": "What is there?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
            {"role": "user", "content": [result]},
        ],
        "max_tokens": 9,
        "system_prompt": "Be brief.",
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "tool_choice": "required",
        "stop_sequences": ["."],
    }
    sampler = ChatModelSampler(Scripted())
    reply = await sampler.sample(SampleRequest.model_validate(request))
    assert reply.text == "I look."
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("1", "look", {"at": "x"})
    ]
    assert reply.usage == Usage(input_tokens=3, output_tokens=4)

    (tools, choice), (messages, stop, options) = seen
    assert (tools[0]["function"]["name"], choice) == ("look", "any")
    assert [type(each) for each in messages] == [
        SystemMessage,
        HumanMessage,
        AIMessage,
        ToolMessage,
    ]
    assert messages[2].tool_calls[0]["id"] == messages[3].tool_call_id == "0"
    assert (stop, options) == (["."], {"max_tokens": 9})

    picture = {"type": "image", "data": "", "mimeType": "image/png"}
    request["messages"] = [{"role": "user", "content": [picture]}]
    refused = ""
    try:
        await sampler.sample(SampleRequest.model_validate(request))
    except ToolError as error:
        refused = str(error)
    assert "'image'" in refused


asyncio.run(check())
