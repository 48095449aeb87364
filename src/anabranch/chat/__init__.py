"""The chat: a session in which a user leads a conversation on the tree, and its front ends.

A :class:`Session` takes lines of text (messages and ``/commands``) and returns outputs. Front ends, such
as the terminal's, run sessions and show the outputs.

    _terminal   the session, its commands, and their screen at a terminal or in a script
    _turns      a user's call of a tool, and the end of a turn, in the terminal and on the web
    _plugins    plugins: tools with handlers that show their questions
    _client     the client of a chat's server, which answers questions by plugins
    _web        the web application: its routes, its events, its page
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from anabranch.chat._plugins.plugin import (
    Plugin,
    PluginBuilder,
    PluginClient,
    make_plugin,
)
from anabranch.chat._plugins.plugin_answerer import PluginAnswerer
from anabranch.chat._plugins.plugin_request import (
    ElicitId,
    PluginRequest,
)
from anabranch.chat._terminal.session import (
    COMMANDS as COMMANDS,
)
from anabranch.chat._terminal.session import (
    Session as Session,
)
from anabranch.chat._terminal.session_dependencies import (
    SessionDependencies as SessionDependencies,
)
from anabranch.chat._terminal.session_output import (
    Output as Output,
)
from anabranch.chat._terminal.session_output import (
    SessionError,
)
from anabranch.chat._terminal.typed_input import (
    read_answer as read_answer,
)
from anabranch.errors import needs_extra

if TYPE_CHECKING:
    from anabranch.chat._client.chat_client import ChatClient
    from anabranch.chat._client.chat_reply import ChatClientError, ChatReply
    from anabranch.chat._web.access import Authenticate
    from anabranch.chat._web.application import make_chat_app
    from anabranch.chat._web.rate_limits import RateLimits

__all__ = [
    "Authenticate",
    "ChatClient",
    "ChatClientError",
    "ChatReply",
    "ElicitId",
    "Plugin",
    "PluginAnswerer",
    "PluginBuilder",
    "PluginClient",
    "PluginRequest",
    "RateLimits",
    "SessionError",
    "make_chat_app",
    "make_plugin",
]


_LAZY = {
    "Authenticate": "anabranch.chat._web.access",
    "ChatClient": "anabranch.chat._client.chat_client",
    "ChatClientError": "anabranch.chat._client.chat_reply",
    "ChatReply": "anabranch.chat._client.chat_reply",
    "RateLimits": "anabranch.chat._web.rate_limits",
    "make_chat_app": "anabranch.chat._web.application",
}
"""The names that need the extra ``chat``, and their modules."""


def __getattr__(name: str) -> object:
    """Load a name that needs the extra ``chat`` on its first use."""
    if name in _LAZY:
        with needs_extra("chat", f"anabranch.chat.{name}"):
            module = import_module(_LAZY[name])
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
