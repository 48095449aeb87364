"""A session: the chat without a front end.

Owns what a line of input does on the conversation tree, and what is given back for it. Nothing is
drawn here and no terminal is known; ``cli/chat.py`` shows a session, and any other front end can.

    session.py      the session: where one is, and what a line sets going
    walks.py        the thread as it is known, kept up to date
    trail.py        where one has been
    reading.py      how a line is read
    commands.py     the table of commands, and /help
    output.py       what comes back
    settings.py     what can be set
    world.py        what a session needs of the world around it
    moving.py       commands that move through the tree
    talking.py      commands that let the model or a tool work
    keeping.py      commands about threads, files and prompts that are kept
    about.py        commands about the session itself
"""

# In the order in which /help lists their commands, which are registered when they are imported.
from anabranch.chat._session import (
    talking_commands,
    moving_commands,
    thread_commands,
    about_commands,
)  # noqa: F401, I001  # pyright: ignore[reportUnusedImport]
from anabranch.chat._session.output import Output, SessionError
from anabranch.chat._session.session import Session
from anabranch.chat._session.settings import Settings
from anabranch.chat._session.dependencies import Models, NoModels, Prompts, World

__all__ = [
    "Models",
    "NoModels",
    "Output",
    "Prompts",
    "Session",
    "SessionError",
    "Settings",
    "World",
]
