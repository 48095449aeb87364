"""The folding tools for other hosts: on both eras of MCP, without a session of the connection."""

import pytest

from anabranch.folding import BranchService, FoldingSettings, folding_tools
from anabranch.mcp import create_server
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock
from tests.folding.hosts import ERAS, TASK, Host


@pytest.fixture
def branches() -> BranchService:
    return BranchService(
        open_branch_store("memory:"),
        settings=FoldingSettings(default_budget=1_000),
        clock=ManualClock(),
    )


@pytest.fixture(params=list(ERAS))
def host(request: pytest.FixtureRequest, branches: BranchService) -> Host:
    server = create_server("folding", folding_tools(branches), keys=["k" * 32])
    return Host(server, ERAS[request.param])


async def test_from_creation_to_return(host: Host) -> None:
    created = await host.call("branch_create", **TASK)
    assert created == {
        "branch_id": created["branch_id"],
        "session_id": created["session_id"],
        "injected_context": [],
        "budget_allocated": 1_000,
        "parent_budget_remaining": 326_680,
        "depth": 1,
    }
    session, branch = created["session_id"], created["branch_id"]
    inner = await host.call("branch_create", **TASK, session_id=session, budget=200)
    assert inner["depth"] == 2
    reported = await host.call("branch_report", tokens=170, session_id=session, partial="So far")
    assert reported["branch_id"] == inner["branch_id"]
    assert "call branch_return" in reported["warning"]
    returned = await host.call("branch_return", message="Here.", branch_id=branch)
    assert returned == {
        "success": True,
        "tokens_used": returned["tokens_used"],
        "memory_queued": False,
        "branch_id": branch,
        "message": "Here.",
    }
    assert returned["tokens_used"] > 170, "what its children have used is a part of it"
    child = await host.call("branch_status", branch_id=inner["branch_id"])
    assert (child["status"], child["result"]) == ("completed", "So far")
    assert child["error"].startswith("orphaned")
    record = await host.call("branch_status", branch_id=branch, session_id=session)
    assert record["status"] == "completed"
    assert record["result"] == "Here."
    assert record["budget_total"] == 1_000
    assert record["created_at"] == record["completed_at"] == "2001-09-09T01:46:40+00:00"
    assert (await host.call("branch_status", session_id=session))["status"] == "none"


async def test_a_client_reads_the_code_and_the_remedy_of_a_refusal(host: Host) -> None:
    """Excludes a refusal that is masked as an unexpected error, or fails the connection."""
    assert await host.refused("branch_return", message="Here.", branch_id="br_none") == (
        "Error executing tool branch_return: FOLD001: There is no branch 'br_none'. Use the"
        " branch_id that branch_create has returned."
    )


def test_the_schema_shows_the_settings(branches: BranchService) -> None:
    create, *_ = folding_tools(branches)
    shown = create.input_schema["properties"]
    assert shown["budget"]["default"] == 1_000
    assert shown["timeout_seconds"]["default"] == 300
    assert create.input_schema["required"] == ["description", "prompt"]
