"""``anabranch serve`` as a surface: the tools that it lists over HTTP, for callers with tokens."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

from tests.mcp.harness import bearing
from tests.owners.users import Answer, Parameter, User
from tests.owners.web import sample_of, texts_of

TARGET = Path(__file__).with_name("asking.py")
TOKENS = 2_000
"""More tokens than callers."""
PLENTY = {
    "ANABRANCH_FOLDING_MAX_CONCURRENT_PER_INSTANCE": "10000",
    "ANABRANCH_FOLDING_MAX_CONCURRENT_PER_CALLER": "10000",
    "ANABRANCH_FOLDING_MAX_CONCURRENT_PER_SESSION": "10000",
    "ANABRANCH_FOLDING_MAX_BUDGET": "100000000",
    "ANABRANCH_FOLDING_SESSION_BUDGET": "1000000000",
    "ANABRANCH_FOLDING_DEFAULT_TIMEOUT_SECONDS": "6000",
    "ANABRANCH_FOLDING_MAX_TIMEOUT_SECONDS": "6000",
}
"""Limits on branches that are too high to matter here."""
WITHOUT_FORMS = {"answer_questions"}


@contextmanager
def command(store: str, target: Path) -> Generator[tuple[str, list[str]]]:
    """Run the real command, and yield its URL and its valid tokens."""
    tokens = [secrets.token_hex(8) for _ in range(TOKENS)]
    line = [sys.executable, "-m", "anabranch", "serve", str(target), "--folding", "--memory"]
    line += ["--transport", "http", "--port", "0", "--store", store, "--ask-fallback"]
    given = {"ANABRANCH_KEYS": "k" * 32, "ANABRANCH_TOKEN": ",".join(tokens)}
    environment = {**os.environ, **given, **PLENTY}
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        for shown in server.stderr:
            if shown.startswith("Serving "):
                break
        else:
            raise AssertionError("the server has not begun")
        try:
            yield shown.rpartition(" at ")[2].strip(), tokens
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()


@asynccontextmanager
async def serving_tools(store: str, mode: str, target: Path = TARGET) -> AsyncGenerator[McpSurface]:
    """Serve folding, the memory and tools that ask, and connect to the server in an era."""
    with command(store, target) as (url, tokens):
        surface = McpSurface(url, tokens, mode)
        await surface.list()
        yield surface


async def accept(context: Any, params: Any) -> types.ElicitResult:
    """Return the reply of a user to a form."""
    return types.ElicitResult(action="accept", content={"text": "yes"})


class McpSurface:
    def __init__(self, url: str, tokens: Sequence[str], mode: str) -> None:
        self._url = url
        self._tokens = list(tokens)
        self._of: dict[str | None, str] = {}
        self.mode: Any = mode
        self._schemas: dict[str, dict[str, Any]] = {}

    async def list(self) -> None:
        async with self._client(User("lister", ""), forms=True) as client:
            found = (await client.list_tools()).tools
        self._schemas = {each.name: each.input_schema for each in found}

    def operations(self) -> Mapping[str, Sequence[Parameter]]:
        """Return the listed tools, with their parameters that take texts."""
        return {name: texts_of(schema) for name, schema in self._schemas.items()}

    def sample(self, user: User, operation: str) -> dict[str, Any]:
        """Return arguments that fit the schema of a tool."""
        return sample_of(self._schemas[operation], user)

    async def do(self, user: User, operation: str, given: dict[str, Any]) -> Answer:
        """Call a tool on a new connection; a client that shows no forms receives the questions as text."""
        forms = bool(given.get("forms", operation not in WITHOUT_FORMS))
        async with self._client(user, forms=forms) as client:
            result = await client.call_tool(operation, given)
        content = [each.model_dump(mode="json", exclude_none=True) for each in result.content]
        return Answer(not result.is_error, json.dumps([content, result.structured_content]))

    def _client(self, user: User, *, forms: bool) -> Client:
        if user.name not in self._of:
            self._of[user.name] = self._tokens.pop()
        answers: dict[str, Any] = {"elicitation_callback": accept} if forms else {}
        return Client(bearing(self._url, self._of[user.name]), mode=self.mode, **answers)
