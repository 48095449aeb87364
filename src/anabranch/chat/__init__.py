"""The chat: a session in which a person leads a conversation on the tree, and its front ends.

A :class:`Session` takes lines of text (messages and ``/commands``) and returns outputs; it neither
draws nor knows who shows them. Front ends run sessions; the terminal's is the first.

    _chat_session       the session: lines in, outputs out
    _commands           the commands, and the table of them
    _session            the parts of a session: its state, its place in the tree, its settings
    _terminal_session   a session at a terminal, or led by a script
    _name_value         arguments typed as name=value
"""

from anabranch.chat._chat_session import Session
from anabranch.chat._commands.command import Command, Outputs
from anabranch.chat._commands.command_table import COMMANDS
from anabranch.chat._session.saved_prompts import SavedPrompts
from anabranch.chat._session.session_cursor import SessionCursor
from anabranch.chat._session.session_dependencies import ModelCatalogue, SessionDependencies
from anabranch.chat._session.session_output import Action, Output, SessionError
from anabranch.chat._session.session_settings import SessionSettings
from anabranch.chat._session.session_state import SessionState
from anabranch.chat._session.typed_values import read_answer

__all__ = [
    "COMMANDS",
    "Action",
    "Command",
    "ModelCatalogue",
    "Output",
    "Outputs",
    "SavedPrompts",
    "Session",
    "SessionCursor",
    "SessionDependencies",
    "SessionError",
    "SessionSettings",
    "SessionState",
    "read_answer",
]
