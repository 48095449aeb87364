"""``anabranch chat`` as a surface: its commands, as its table lists them, each in a new conversation."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from anabranch.agents import Agent
from anabranch.chat import COMMANDS, Session, enter
from anabranch.testing import MockModel
from anabranch.tree import TreeStore
from tests.owners.users import Answer, Parameter, User
from tests.owners.web import decide

SAID = "hello"
"""The message of each conversation in the terminal."""


class TerminalSurface:
    """The commands of a chat in a terminal, which has no principal."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._numbers = count(1)

    def operations(self) -> Mapping[str, Sequence[Parameter]]:
        """Return the commands; each has one parameter, the rest of its line."""
        return {f"/{name}": [("rest",)] for name in COMMANDS}

    def sample(self, user: User, operation: str) -> dict[str, Any]:
        """Return words for the required arguments of a command."""
        return {"rest": " ".join(["none"] * COMMANDS[operation[1:]].min_arguments)}

    async def do(self, user: User, operation: str, given: dict[str, Any]) -> Answer:
        """Send a message in a new conversation, then type a command."""
        agent = Agent(self._store, MockModel(decide))
        session = Session(agent, thread_id=user.fresh("thread"))
        await session.start()
        await enter(session, SAID)
        shown = await enter(session, f"{operation} {given.get('rest', '')}".rstrip())
        texts = [each.content for each in shown]
        is_done = not any(each.type == "error" for each in shown)
        return Answer(is_done, "\n".join(texts))
