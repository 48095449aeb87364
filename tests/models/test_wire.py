"""What providers are really sent: their own clients, against a server on this machine."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from anabranch import ToolSpec, assistant, user
from anabranch.messages import SampleRequest, TextBlock, ToolResultBlock, ToolUseBlock
from anabranch.models import open_model

REQUEST = SampleRequest(
    system_prompt="Be brief.",
    messages=(
        user("Is it raining?"),
        assistant([ToolUseBlock(id="u1", name="look", input={"at": "sky"})]),
        user([ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="rain"),))]),
    ),
    max_tokens=77,
    tools=(
        ToolSpec(
            name="look",
            description="Look.",
            input_schema={"type": "object", "properties": {"at": {"type": "string"}}},
        ),
    ),
    tool_choice="required",
)
ANTHROPIC_ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test-1",
    "content": [
        {"type": "text", "text": "Once more."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "street"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 11, "output_tokens": 5},
}
OPENAI_USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


@dataclass
class Provider:
    url: str = ""
    status: int = 200
    answer: dict[str, Any] = field(default_factory=dict[str, Any])
    paths: list[str] = field(default_factory=list[str])
    bodies: list[Any] = field(default_factory=list[Any])


@pytest.fixture
def provider() -> Iterator[Provider]:
    told = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.paths.append(self.path)
            told.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(told.answer).encode()
            self.send_response(told.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
            """Say nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield told
        server.shutdown()
        thread.join()


async def test_anthropic_is_sent_its_messages_format(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
    provider.answer = ANTHROPIC_ANSWER
    reply = await open_model("anthropic:claude-sonnet-4-6").sample(REQUEST)
    sent = provider.bodies[0]
    assert (sent["model"], sent["max_tokens"]) == ("claude-sonnet-4-6", 77)
    assert "Be brief." in json.dumps(sent["system"])
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    use, result = sent["messages"][1]["content"][0], sent["messages"][2]["content"][0]
    assert (use["type"], use["id"], use["input"]) == ("tool_use", "u1", {"at": "sky"})
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "u1")
    assert "rain" in json.dumps(result["content"])
    assert (sent["tools"][0]["name"], sent["tool_choice"]["type"]) == ("look", "any")
    assert (reply.text, reply.model, reply.stop_reason) == (
        "Once more.",
        "claude-test-1",
        "toolUse",
    )
    assert [(c.id, c.arguments) for c in reply.tool_calls] == [("toolu_1", {"at": "street"})]
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (11, 5)


async def test_a_model_that_refuses_to_be_forced_is_told_in_words_to_call_a_tool(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
    provider.answer = ANTHROPIC_ANSWER
    await open_model("anthropic:claude-sonnet-5-5").sample(REQUEST)
    assert provider.bodies[0]["tool_choice"]["type"] == "auto"
    system = json.dumps(provider.bodies[0]["system"])
    assert "Be brief." in system
    assert "Answer by calling one of the tools." in system


async def test_openai_is_sent_its_responses_format(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
    provider.answer = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-test-1",
        "output": [
            {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Once more.", "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "f1",
                "call_id": "call_9",
                "name": "look",
                "arguments": '{"at": "street"}',
                "status": "completed",
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 11,
            "output_tokens": 5,
            "total_tokens": 16,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    reply = await open_model("openai:gpt-4o").sample(REQUEST)
    sent = provider.bodies[0]
    assert provider.paths == ["/responses"]
    assert (sent["model"], sent["max_output_tokens"]) == ("gpt-4o", 77)
    assert "Be brief." in json.dumps(sent)
    assert [(i["call_id"], i["type"]) for i in sent["input"] if "call_id" in i] == [
        ("u1", "function_call"),
        ("u1", "function_call_output"),
    ]
    assert (sent["tools"][0]["name"], sent["tool_choice"]) == ("look", "required")
    assert (reply.text, reply.model) == ("Once more.", "gpt-test-1")
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("look", {"at": "street"})]
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (11, 5)


async def test_ollama_is_sent_the_chat_completions_format(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", f"{provider.url}/v1")
    message = {"role": "assistant", "content": "Take a coat."}
    provider.answer = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "qwen-test",
        "choices": [{"index": 0, "finish_reason": "length", "message": message}],
        "usage": OPENAI_USAGE,
    }
    reply = await open_model("ollama:qwen3").sample(REQUEST)
    sent = provider.bodies[0]
    assert provider.paths == ["/v1/chat/completions"]
    assert [message["role"] for message in sent["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert sent["messages"][2]["tool_calls"][0]["id"] == sent["messages"][3]["tool_call_id"] == "u1"
    assert sent["tools"][0]["function"]["name"] == "look"
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert (reply.text, reply.stop_reason) == ("Take a coat.", "maxTokens")
    assert reply.usage is not None
    assert reply.usage.total_tokens == 16


async def test_a_refusal_of_the_provider_is_raised_as_it_is(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", f"{provider.url}/v1")
    provider.status, provider.answer = 401, {"error": {"message": "who are you?"}}
    with pytest.raises(Exception, match="who are you"):
        await open_model("ollama:qwen3").sample(REQUEST)
