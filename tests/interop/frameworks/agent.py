"""An agent of another maker, run in an environment of its own: AutoGen's, or OpenAI's.

Its model is scripted: it calls a tool, and as long as a result lists questions, it calls the tool
that takes answers. stdin has the script, the last line of stdout
what the agent read, result by result.

    {"maker": "autogen" | "openai", "server": {"url": …} | {"command": …, "args": […]},
     "call": {"name": …, "arguments": {…}}, "answers": [[…] | {"page": {…}}, …]}

An answer that is a page is what the user enters behind the link in the result.
"""

import asyncio
import json
import re
import sys
from urllib.parse import urlencode
from urllib.request import Request, urlopen

ANSWER_QUESTIONS = "answer_questions"


class Script:
    """The model's script: its next action, given the results that it has read."""

    def __init__(self, given):
        self._call = given["call"]
        self._answers = list(given["answers"])
        self._server = given["server"]
        self.results = []

    def next_call(self, results):
        """Return the next tool call, ``None`` at the end."""
        self.results = results
        if not results:
            return self._call
        handle = re.search(r"call='([^']+)'", results[-1])
        if handle is None or not self._answers:
            return None
        arguments, answers = {"call": handle[1]}, self._answers.pop(0)
        if isinstance(answers, dict):
            self._enter(results[-1], answers["page"])
        else:
            arguments["answers"] = answers
        return {"name": ANSWER_QUESTIONS, "arguments": arguments}

    def _enter(self, result, page):
        """Fill in the page behind the link in ``result``, as a browser behind a proxy would."""
        origin, path = re.search(r"(https?://[^/\s]+)(/ask/\S+)", result).groups()
        fields = {f"field:{name}": value for name, value in page.items()}
        body = urlencode({**fields, "action": "accept"}).encode()
        address = self._server["url"].removesuffix("/mcp") + path
        urlopen(Request(address, body, {"Origin": origin})).close()  # noqa: S310 - loopback


async def autogen(given, script):
    """Play ``script`` by an ``AssistantAgent`` with an ``McpWorkbench``."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall
    from autogen_core.models import (
        ChatCompletionClient,
        CreateResult,
        FunctionExecutionResultMessage,
        RequestUsage,
    )
    from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams

    class Scripted(ChatCompletionClient):
        component_type = "scripted"
        model_info = {
            "vision": False,
            "function_calling": True,
            "json_output": False,
            "family": "unknown",
            "structured_output": False,
        }
        capabilities = model_info

        async def create(self, messages, **_):
            results = [
                each.content
                for message in messages
                if isinstance(message, FunctionExecutionResultMessage)
                for each in message.content
            ]
            called = script.next_call(results)
            content = "done"
            if called is not None:
                arguments = json.dumps(called["arguments"])
                number = f"call-{len(results)}"
                content = [FunctionCall(id=number, name=called["name"], arguments=arguments)]
            return CreateResult(
                finish_reason="stop" if called is None else "function_calls",
                content=content,
                usage=RequestUsage(prompt_tokens=0, completion_tokens=0),
                cached=False,
            )

        def create_stream(self, *_, **__):
            raise NotImplementedError

        async def close(self):
            pass

        def actual_usage(self):
            return RequestUsage(prompt_tokens=0, completion_tokens=0)

        total_usage = actual_usage

        def count_tokens(self, *_, **__):
            return 0

        remaining_tokens = count_tokens

    server = given["server"]
    params = (
        StreamableHttpServerParams(url=server["url"], timeout=120)
        if "url" in server
        else StdioServerParams(
            command=server["command"], args=server["args"], read_timeout_seconds=120
        )
    )
    async with McpWorkbench(params) as workbench:
        agent = AssistantAgent("agent", Scripted(), workbench=workbench, max_tool_iterations=9)
        await agent.run(task="Go.")


async def openai(given, script):
    """Play ``script`` by an ``Agent`` with an MCP server."""
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Scripted(Model):
        async def get_response(self, **asked):
            items = [] if isinstance(asked["input"], str) else asked["input"]
            outputs = [
                each["output"] for each in items if each.get("type") == "function_call_output"
            ]
            results = [
                output if isinstance(output, str) else "".join(part["text"] for part in output)
                for output in outputs
            ]
            called = script.next_call(results)
            if called is None:
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                output = ResponseOutputMessage(
                    id="last", type="message", role="assistant", status="completed", content=[text]
                )
            else:
                output = ResponseFunctionToolCall(
                    type="function_call",
                    call_id=f"call-{len(results)}",
                    name=called["name"],
                    arguments=json.dumps(called["arguments"]),
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *_, **__):
            raise NotImplementedError

    set_tracing_disabled(True)
    server = given["server"]
    kind = MCPServerStdio
    if "url" in server:
        kind, server = MCPServerStreamableHttp, {**server, "timeout": 120}
    async with kind(params=server, client_session_timeout_seconds=120) as tools:
        agent = Agent(name="agent", model=Scripted(), mcp_servers=[tools])
        await Runner.run(agent, "Go.", max_turns=9)


def main():
    given = json.load(sys.stdin)
    script = Script(given)
    asyncio.run({"autogen": autogen, "openai": openai}[given["maker"]](given, script))
    print(json.dumps(script.results))


main()
