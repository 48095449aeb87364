"""A client over HTTP that repeats a request, byte for byte, until it receives an answer.

The client calls in two ways: rounds of ``tools/call``, and sagas. Every request uses a new
connection, so that the next request reaches another worker.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

import httpx2

Way = Literal["rounds", "saga"]

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "faults", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}},
}
GO = {"action": "accept", "content": {"on": True}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Yes."}, "model": "faults"}
UNREACHABLE = "cannot reach its store"


@dataclass(slots=True)
class Client:
    """Performs one call."""

    key: str
    url: str
    http: httpx2.AsyncClient
    repeated: int = 0
    _ids: Any = field(default_factory=count)

    async def play(
        self, way: Way, arguments: dict[str, Any], *, leave_at: int | None = None
    ) -> dict[str, Any] | None:
        """Answer all questions and return the result, or leave at question ``leave_at``, counted from 0."""
        asked = 0
        params: dict[str, Any] = {"name": "journey", "arguments": arguments}
        method = "tools/call" if way == "rounds" else "tools/callSaga"
        completed: list[dict[str, Any]] = []
        while True:
            result = await self._send(method, params)
            if "requestState" not in result and "sagaToken" not in result:
                return result
            if asked == leave_at:
                return None
            asked += 1
            if way == "rounds":
                answers = {
                    key: GO if request["method"] == "elicitation/create" else SAID
                    for key, request in result["inputRequests"].items()
                }
                params = {
                    "name": "journey",
                    "arguments": arguments,
                    "requestState": result["requestState"],
                    "inputResponses": answers,
                }
            else:
                method = "tools/resumeSaga"
                completed += [
                    {
                        "stepId": step["stepId"],
                        "result": GO if step["type"] == "elicitation" else SAID,
                    }
                    for step in result["steps"]
                ]
                params = {"sagaToken": result["sagaToken"], "completedSteps": completed}

    async def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {
            "Accept": "application/json, text/event-stream",
            "Mcp-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Connection": "close",
        }
        if method == "tools/call":
            headers["Mcp-Name"] = "journey"
        body: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**params, "_meta": {**META, "anabranch/idempotency-key": self.key}},
        }
        while True:
            try:
                response = await self.http.post(f"{self.url}/mcp", json=body, headers=headers)
                message = response.json()
            except (httpx2.TransportError, ValueError):
                # The connection broke, maybe in the middle of a reply.
                self.repeated += 1
                continue
            assert "result" in message, message
            result: dict[str, Any] = message["result"]
            if result.get("isError") and UNREACHABLE in result["content"][0]["text"]:
                self.repeated += 1
                continue
            return result
