"""Over MCP, a branch belongs to the principal that has created it, on both eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from anabranch.folding import BranchService, UnknownBranchError, folding_tools
from anabranch.mcp import create_server
from anabranch.stores import open_branch_store
from tests.folding.hosts import ERAS, TASK, Host
from tests.mcp.harness import bearing, http


class Verifier:
    """The token is the name of its owner."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="app", subject=token, scopes=["tools"])


@asynccontextmanager
async def served(branches: BranchService) -> AsyncGenerator[str]:
    server = create_server(
        "folding",
        folding_tools(branches),
        keys=["k" * 32],
        auth=AuthSettings(
            issuer_url=AnyHttpUrl("https://login.example.org"),
            resource_server_url=AnyHttpUrl("https://tools.example.org/mcp"),
            required_scopes=["tools"],
            validate_token_resource=False,
        ),
        token_verifier=Verifier(),
    )
    async with http(server) as url:
        yield url


@pytest.mark.parametrize("era", list(ERAS))
async def test_the_branches_of_another_principal_are_unknown(era: str) -> None:
    """Excludes operations without the caller's identity: a status is authorised like a return."""
    branches = BranchService(open_branch_store("memory:"))
    async with served(branches) as url:
        owner, other = (Host(bearing(url, name * 16), ERAS[era]) for name in "ab")
        made = await owner.call("branch_create", **TASK)
        branch, session = {"branch_id": made["branch_id"]}, {"session_id": made["session_id"]}
        never = str(UnknownBranchError("br_never"))
        for tool, given in (
            ("branch_return", {"message": "mine"}),
            ("branch_status", {}),
            ("branch_report", {"tokens": 1}),
        ):
            for asked in (branch, {**branch, **session}):
                refused = await other.call(tool, **given, **asked)
                unknown = await other.call(tool, **given, **{**asked, "branch_id": "br_never"})
                assert refused.replace(made["branch_id"], "br_never") == unknown
                assert never in unknown
        inside = {"parent_branch_id": made["branch_id"]}
        assert "FOLD001" in await other.call("branch_create", **TASK, **inside)
        record = await owner.call("branch_status", **session)
        assert (record["status"], record["session_id"]) == ("active", made["session_id"])
        returned = await owner.call("branch_return", message="done", **session)
        assert returned["branch_id"] == made["branch_id"]
