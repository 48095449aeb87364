"""The protocol's Inspector, on its command line, lists our tools and reports no faults.

Its command line cannot answer questions, so the test lists the tools and calls none.
"""

import json
from pathlib import Path

import pytest

from tests.interop.clients.conftest import TARGETS
from tests.interop.processes import CLIENTS, SERVE, run_node

INSPECTOR = CLIENTS / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@pytest.mark.parametrize(
    ("transport", "era"), [("http", "legacy"), ("http", "modern"), ("stdio", "auto")]
)
def test_tools_are_listed_with_schemas_that_travel(
    request: pytest.FixtureRequest, tmp_path: Path, transport: str, era: str
) -> None:
    """``--strict`` fails on schemas that some client or model could not accept."""
    options = ["--cli", "--method", "tools/list", "--strict", "--protocol-era", era]
    target = (
        [request.getfixturevalue("url")]
        if transport == "http"
        else ["--", *SERVE, *map(str, TARGETS)]
    )
    status, out, stderr = run_node(
        INSPECTOR, *options, "--format", "json", "--quiet", *target, home=tmp_path
    )
    assert (status, stderr) == (0, "")
    tools = {tool["name"]: tool for tool in json.loads(out)["result"]["tools"]}
    assert list(tools) == ["pick_card", "journey", "interview"]
    assert set(tools["pick_card"]["inputSchema"]["properties"]) == {"count", "analyze"}
    assert tools["journey"]["inputSchema"]["required"] == ["who", "effects"]
    assert set(tools["journey"]["outputSchema"]["properties"]) == {"who", "cards", "tip", "ticket"}
