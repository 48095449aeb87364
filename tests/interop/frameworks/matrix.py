"""The features of each framework: each line is a test, run with each framework that the line names.

``python -m tests.interop.frameworks.matrix`` writes the table of ``docs/adapters.md``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["FRAMEWORKS", "LINES", "PAGE", "frameworks_of", "page_with_table"]

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
    """A line of the table.

    Attributes:
        says: what works, as the page says it.
        frameworks: where.
    """

    says: str
    frameworks: tuple[str, ...] = ALL


LINES: Final = {
    "questions": Line("typed questions, one after the other, each round in another process"),
    "at_once": Line("several questions of one call, and of parallel calls, together"),
    "in_part": Line("some of them are answered, the others stay open"),
    "declined": Line("a question is declined, or cancelled"),
    "invalid": Line("an invalid answer runs nothing, and is asked for again"),
    "links": Line("a question that sends the user to a page"),
    "sleeps": Line("a tool that sleeps, and continues at its time"),
    "model": Line("a model of the framework answers samples", ("pydantic-ai", "langchain")),
    "sampler": Line("a sampler of yours answers samples"),
    "notices": Line("progress, as it happens", ("pydantic-ai", "langchain")),
    "refusals": Line("the model reads why a tool refuses"),
    "failing": Line(
        "a tool that fails after its question ends its call; the model reads the error's id"
    ),
    "once": Line("a tool that fails before it asks is run once"),
    "kept": Line(
        "if a call cannot continue now, parallel calls keep their progress",
        ("openai-agents", "google-adk", "agent-framework"),
    ),
    "caller": Line("a snapshot is of no use to another caller"),
    "sealed": Line("what a step has read is not shown to the user, and not readable in a snapshot"),
    "stored": Line("with a store, a snapshot that is resumed twice repeats nothing"),
    "version": Line("with a store, a call that other code has begun stays open for that code"),
    "large": Line("with a store, 50 kB that a step has read are not in the snapshot"),
}


def frameworks_of(line: str) -> tuple[str, ...]:
    return LINES[line].frameworks


PAGE: Final = Path(__file__).parents[3] / "docs" / "adapters.md"


def table() -> str:
    """Return the table as Markdown."""
    head = f"| | {' | '.join(FRAMEWORKS.values())} |\n|---|{':-:|' * len(FRAMEWORKS)}\n"
    rows = (
        f"| {line.says} | {' | '.join('yes' if f in line.frameworks else 'no' for f in FRAMEWORKS)} |"
        for line in LINES.values()
    )
    return head + "\n".join(rows)


def page_with_table() -> str:
    """Return the page with this table in place of the one that it has."""
    text = PAGE.read_text(encoding="utf-8")
    mark = "<!-- the table of tests/interop/frameworks/matrix.py -->\n"
    before, _, after = text.partition(mark)
    rest = after.lstrip("\n").split("\n")
    while rest[0].startswith("|"):
        del rest[0]
    return f"{before}{mark}\n{table()}\n\n" + "\n".join(rest).lstrip("\n")


if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")
