"""``anabranch serve --memory --token``: each token is a caller with a separate memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client

from anabranch.cli._combined_server import ServerRecipe
from anabranch.cli._option_groups import AgentTools, Persistence
from tests.cli.http_server import guarded, serving
from tests.mcp.harness import bearing

NOTE = {"title": "Locks", "description": "When a door is locked", "content": "Ann has the key."}
ALICE, BOB = "a" * 32, "b" * 32


@asynccontextmanager
async def tokens(mode: Any, url: str, shared: str | None = None) -> AsyncGenerator[Any]:
    """Yield a function that calls a tool of ``serve --memory --folding`` as the caller with a token."""
    recipe = ServerRecipe(
        (),
        None,
        ("k" * 32,),
        Persistence(url),
        agent_tools=AgentTools(folding=True, memory=True, shared_memory=shared),
    )
    made = recipe.make_server()
    app = guarded(made.server, ALICE, BOB)
    async with made.around, serving(app) as address:

        async def call(token: str, tool: str, **given: Any) -> Any:
            target = f"http://{address[0]}:{address[1]}/mcp"
            async with Client(bearing(target, token), mode=mode) as client:
                result = await client.call_tool(tool, given)
            assert not result.is_error, result
            return result.structured_content

        yield call


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_server_with_tokens_has_a_memory_for_each(mode: Any, tmp_path: Any) -> None:
    """The memory's tools and the notes at the start of a branch are separate for each caller."""
    task = {"description": "Open the locked door", "prompt": "Find the key."}
    async with tokens(mode, f"sqlite:///{tmp_path}/all.db") as call:
        note = await call(ALICE, "memory_record", **NOTE)
        assert note.pop("similar") == []
        assert (await call(BOB, "memory_search", query="locked door"))["result"] == []
        assert (await call(BOB, "branch_create", **task))["injected_context"] == []
        assert (await call(ALICE, "memory_search", query="locked door"))["result"] == [note]
        [injected] = (await call(ALICE, "branch_create", **task))["injected_context"]
        assert (injected["id"], injected["scope"]) == (note["id"], "user")


async def test_callers_of_a_server_share_the_project_that_is_named(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/all.db"
    async with tokens("2026-07-28", url, "web") as call:
        own = await call(ALICE, "memory_record", **NOTE)
        shared = {**NOTE, "content": "The desk has a key."}
        note = await call(ALICE, "memory_record", **shared, scope="project")
        assert [each["id"] for each in note.pop("similar")] == [own["id"]]
        assert (await call(BOB, "memory_search", query="locked door"))["result"] == [note]
