"""A server in its own process. Starting one is slow, so each test covers several rules."""

from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError

from tests.mcp.harness import HANDSHAKE, MODES, Answers, connected, echo, stdio, text_of
from tests.mcp.tools import ANSWERED, Report, traveller


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_in_another_process_answers_simultaneous_calls(
    mode: str, tmp_path: Path
) -> None:
    effects, answers, found = tmp_path / "effects", traveller(), list[Report]()

    async def travel(client: Client) -> None:
        result = await client.call_tool(
            "journey", {"who": "Ida"}, progress_callback=answers.on_progress
        )
        found.append(Report.model_validate(result.structured_content))

    async with connected(stdio(str(effects)), mode, answers) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(travel, client)
        failed = await client.call_tool("journey", {"who": "Ida", "fail": True})
        refused = await client.call_tool("journey", {"whom": "Ida"})
    assert found == [ANSWERED] * 3
    assert "no seat left" in text_of(failed)
    assert "who: Field required." in text_of(refused)
    done = effects.read_text().splitlines()
    assert sorted(done[:9]) == sorted(["pack", "scout", "book"] * 3)
    assert done[9:] == ["pack", "scout", "book", "undo BOOK", "undo PACK"]
    assert [message for _, _, message in answers.progress].count("done") == 3
    assert answers.logs.count(("info", "Ida sets out")) == 4


async def test_a_client_that_goes_away_leaves_no_effect_behind(tmp_path: Path) -> None:
    effects, asked = tmp_path / "effects", anyio.Event()

    async def wait_for_ever(_: object) -> object:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def travel(client: Client) -> None:
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("journey", {"who": "Ida"})

    answers = Answers(wait_for_ever, echo)
    async with (
        anyio.create_task_group() as tasks,
        connected(stdio(str(effects)), HANDSHAKE, answers) as client,
    ):
        tasks.start_soon(travel, client)
        await asked.wait()
    assert effects.read_text().splitlines() == ["pack", "undo PACK"]
