"""``anabranch chat`` as a surface: its commands, as the table of them lists them, in one conversation each."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from anabranch.agents import Agent
from anabranch.chat import COMMANDS, Session, enter
from anabranch.testing import MockModel
from anabranch.tree import TreeStore
from tests.owners.people import Answer, Parameter, Person
from tests.owners.web import decide

SAID = "hello"
"""What is a message of the terminal's conversations."""


class TerminalSurface:
    """The commands of a chat in a terminal, which has no principal."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._numbers = count(1)

    def operations(self) -> Mapping[str, Sequence[Parameter]]:
        """The commands, each of which is given the rest of its line."""
        return {f"/{name}": [("rest",)] for name in COMMANDS}

    def sample(self, person: Person, operation: str) -> dict[str, Any]:
        """Words for as many arguments as a command must have."""
        return {"rest": " ".join(["none"] * COMMANDS[operation[1:]].min_arguments)}

    async def do(self, person: Person, operation: str, given: dict[str, Any]) -> Answer:
        """Say something in a new conversation, and type a command."""
        agent = Agent(self._store, MockModel(decide))
        session = Session(agent, thread_id=person.fresh("thread"))
        await session.start()
        await enter(session, SAID)
        shown = await enter(session, f"{operation} {given.get('rest', '')}".rstrip())
        texts = [each.content for each in shown]
        is_done = not any(each.type == "error" for each in shown)
        return Answer(is_done, "\n".join(texts))
