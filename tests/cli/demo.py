"""The applications of ``anabranch web`` without a configured model."""

from typing import Any

from starlette.types import ASGIApp

from anabranch.chat import make_chat_app
from anabranch.cli._chat_parts import DemoModel, WithoutModel, game
from tests.agents.memory import MemoryTrees


def demo(*tools: Any) -> ASGIApp:
    """Return the application whose model plays the demo; its tool is the card game unless tools are
    given.
    """
    return make_chat_app(MemoryTrees(), DemoModel(), tools or [game()])


def without_model(*tools: Any) -> ASGIApp:
    return make_chat_app(MemoryTrees(), WithoutModel(), tools)
