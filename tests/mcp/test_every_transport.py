"""One tool over both eras and three transports has the same result and the same effects."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client

from tests.mcp.harness import MODES, Answers, connected, over, serving
from tests.mcp.tools import ANSWERED, Report, journey, traveller

pytestmark = [
    pytest.mark.parametrize("mode", MODES),
    pytest.mark.parametrize("transport", ["memory", "http"]),
]


@asynccontextmanager
async def travelling(
    transport: str, mode: str, effects: Path, answers: Answers
) -> AsyncGenerator[Client, None]:
    async with (
        over(transport, serving(journey(effects))) as server,
        connected(server, mode, answers) as client,
    ):
        yield client


async def test_a_tool_runs_to_its_end_with_each_effect_done_once(
    transport: str, mode: str, tmp_path: Path
) -> None:
    effects, answers = tmp_path / "effects", traveller()
    async with travelling(transport, mode, effects, answers) as client:
        result = await client.call_tool(
            "journey", {"who": "Ida"}, progress_callback=answers.on_progress
        )
        listed = (await client.list_tools()).tools
    assert Report.model_validate(result.structured_content) == ANSWERED
    assert effects.read_text().split() == ["pack", "scout", "book"]
    assert answers.logs == [("info", "Ida sets out"), ("debug", "4 messages at depth 1")]
    assert answers.progress == [(1, None, "packing"), (2, None, "scouting"), (3, None, "done")]
    assert [(tool.name, tool.description) for tool in listed] == [("journey", "Travel.")]
    assert listed[0].output_schema is not None
    assert set(listed[0].output_schema["properties"]) == set(Report.model_fields)


async def test_simultaneous_calls_stay_separate(transport: str, mode: str, tmp_path: Path) -> None:
    effects, found = tmp_path / "effects", dict[str, Report]()

    async def travel(client: Client, who: str) -> None:
        result = await client.call_tool("journey", {"who": who})
        found[who] = Report.model_validate(result.structured_content)

    answers = traveller()
    async with (
        travelling(transport, mode, effects, answers) as client,
        anyio.create_task_group() as tasks,
    ):
        for number in range(5):
            tasks.start_soon(travel, client, f"no{number}")
    assert {who: report.who for who, report in found.items()} == {who: who for who in found}
    assert {report.scouted[0] for report in found.values()} == {
        f"<What is near no{number}?>" for number in range(5)
    }
    assert sorted(effects.read_text().split()) == sorted(["pack", "scout", "book"] * 5)
