"""The features of each framework: each line is a test, run with each framework that the line names.

``python -m tests.interop.frameworks.matrix`` writes the table of ``docs/adapters.md``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FRAMEWORKS: Final = {
    "pydantic-ai": "Pydantic AI",
    "langchain": "LangChain, LangGraph",
    "openai-agents": "OpenAI Agents",
    "google-adk": "Google ADK",
    "agent-framework": "Agent Framework",
}
"""By the name of the environment, and of the driver."""

ALL: Final = tuple(FRAMEWORKS)


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    says: str
    frameworks: tuple[str, ...] = ALL


LINES: Final = {
    "questions": Line("typed questions, one after the other, each round in another process"),
    "at_once": Line("several questions of one call, and of parallel calls, together"),
    "in_part": Line("some questions of a call have answers, the others stay open"),
    "declined": Line("a user declines or cancels a question"),
    "invalid": Line("an invalid answer does not run the tool, and the agent pauses again"),
    "links": Line("a question that sends the user to a page"),
    "sleeps": Line("a tool that sleeps, and continues at its time"),
    "model": Line("a model of the framework answers samples", ("pydantic-ai", "langchain")),
    "sampler": Line("a sampler of yours answers samples"),
    "notices": Line("progress, as it happens", ("pydantic-ai", "langchain")),
    "refusals": Line("the model reads the reason if a tool refuses"),
    "failing": Line(
        "a tool that fails after its question ends its call; the model reads the error's id"
    ),
    "once": Line("a tool that fails before its question runs once"),
    "kept": Line(
        "if a call cannot continue now, parallel calls keep their progress",
        ("openai-agents", "google-adk", "agent-framework"),
    ),
    "caller": Line("another caller cannot use a snapshot"),
    "sealed": Line("the value of a step is hidden from the user, and unreadable in a snapshot"),
    "stored": Line("with a store, a snapshot that is resumed twice repeats no effect"),
    "version": Line("with a store, a call that other code began stays open for that code"),
    "large": Line("with a store, the snapshot omits a step's value of 50 kB"),
}


def frameworks_of(line: str) -> tuple[str, ...]:
    return LINES[line].frameworks


PAGE: Final = Path(__file__).parents[3] / "docs" / "adapters.md"


def table() -> str:
    head = f"| | {' | '.join(FRAMEWORKS.values())} |\n|---|{':-:|' * len(FRAMEWORKS)}\n"
    rows = (
        f"| {line.says} | {' | '.join('yes' if f in line.frameworks else 'no' for f in FRAMEWORKS)} |"
        for line in LINES.values()
    )
    return head + "\n".join(rows)


def page_with_table() -> str:
    """Return the page with this table in place of its present one."""
    text = PAGE.read_text(encoding="utf-8")
    mark = "<!-- the table of tests/interop/frameworks/matrix.py -->\n"
    before, _, after = text.partition(mark)
    rest = after.lstrip("\n").split("\n")
    while rest[0].startswith("|"):
        del rest[0]
    return f"{before}{mark}\n{table()}\n\n" + "\n".join(rest).lstrip("\n")


if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")
