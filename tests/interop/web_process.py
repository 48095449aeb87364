"""``anabranch web`` as a process of a test, with a tool, a scripted model and its own store."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

TOOLS = '''
from pathlib import Path
from typing import Literal
from pydantic import BaseModel, Field
from anabranch import Accepted, BranchContext, Elicitation, tool

DONE = Path("done.txt")

class Booking(BaseModel):
    """What is asked."""
    seats: int = Field(title="Seats", ge=1, le=9)
    diet: Literal["none", "vegan"] = Field(default="none", title="Diet")
    window: bool = Field(default=False, title="Window seat")
    mail: str = Field(default="", title="E-mail", description="For the <b>ticket</b>")

BOOKING = Elicitation("booking", Booking)

def reserve(flight):
    with DONE.open("a") as file:
        file.write(flight + "\\n")
    return flight

@tool(elicits=[BOOKING])
async def book(ctx: BranchContext, flight: str = "AB1") -> str:
    """Book a flight."""
    await ctx.notify("Looking", 1, 2)
    await ctx.step(reserve, flight)
    answer = await ctx.elicit(BOOKING, "How many <script>alert(1)</script> seats?")
    if not isinstance(answer, Accepted):
        return f"not booked: {answer.action}"
    return f"booked {answer.content.seats}, {answer.content.diet}, {answer.content.window}"
'''

SCRIPT: list[dict[str, Any]] = [
    {"text": "Forked.", "when": "fork", "repeat": True},
    {
        "text": "# Done\n\n`x = 1` and [a link](javascript:alert(1))",
        "when": "booked",
        "repeat": True,
    },
    {
        "text": "I will book it. <img src=x onerror=alert(1)>",
        "tool_calls": [{"name": "book", "arguments": {}}],
        "when": "book",
        "repeat": True,
    },
    {"text": "```python\nprint(1)\n```", "when": "code", "repeat": True},
]

SEATS: Final = re.compile("How many")
"""What ``book`` asks."""


class Served:
    def __init__(self, folder: Path, *targets: str, model: bool = True) -> None:
        self._folder = folder
        self._targets = targets
        self._model = ["--model", "script:script.json"] if model else []
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        (folder / "tools.py").write_text(TOOLS)
        (folder / "script.json").write_text(json.dumps(SCRIPT))

    def start(self) -> str:
        """Start the process on its previous port, and return its address."""
        command = [sys.executable, "-m", "anabranch", "web", *self._targets, *self._model]
        command += ["--port", str(self.port), "--store", "sqlite:///chat.db"]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"The chat is at (http://127\.0\.0\.1:(\d+)/)", line):
                self.port = int(found[2])
                return found[1]
        raise AssertionError("it did not start")

    def kill(self) -> None:
        """End the process as a crash does."""
        assert self._process is not None
        with self._process:
            self._process.kill()

    def stop(self) -> None:
        """End the process as Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            with self._process:
                self._process.send_signal(signal.SIGINT)
                self._process.wait(120)


@contextmanager
def serving(folder: Path, *targets: str, model: bool = True) -> Generator[tuple[Served, str]]:
    """Run the process inside the block, and yield its address."""
    served = Served(folder, *targets, model=model)
    try:
        yield served, served.start()
    finally:
        served.stop()
