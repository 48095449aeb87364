"""The chat: conversations of a user with an agent, in a terminal or a web application.

A chat session receives the user's messages and ``/commands``, and returns outputs. A front end,
such as the terminal, runs sessions and shows their outputs.

    _terminal   the session, its commands, and their screen at a terminal or in a script
    _turns      a user's call of a tool, and the end of a turn, in the terminal and on the web
    _plugins    plugins: tools with handlers that show their questions
    _client     the client of a chat's server, which answers questions by plugins
    _web        the web application: its routes, its events, its page
"""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names
from anabranch.errors import needs_extra

if TYPE_CHECKING:
    from anabranch.chat._client.chat_client import ChatClient
    from anabranch.chat._client.chat_reply import ChatClientError, ChatReply
    from anabranch.chat._plugins.plugin import Plugin, PluginBuilder, PluginClient, make_plugin
    from anabranch.chat._plugins.plugin_answerer import PluginAnswerer
    from anabranch.chat._plugins.plugin_request import ElicitId, PluginRequest
    from anabranch.chat._terminal.chat_screen import ChatScreen
    from anabranch.chat._terminal.input_lines import (
        ChatAnswerer,
        InputLines,
        ScriptedLines,
        TypedLines,
        piped_lines,
        read_script,
    )
    from anabranch.chat._terminal.line_loop import run_lines
    from anabranch.chat._terminal.replies import LiveReplies, Replies
    from anabranch.chat._terminal.session import Session
    from anabranch.chat._terminal.session_commands import COMMANDS, enter, send
    from anabranch.chat._terminal.session_output import Output, SessionError
    from anabranch.chat._terminal.typed_input import read_answer
    from anabranch.chat._web.access import LOOPBACK
    from anabranch.chat._web.application import make_chat_app
    from anabranch.chat._web.conversations import CONCURRENCY, Conversations
    from anabranch.chat._web.open_work import OpenWork, asleep_until, cancel, open_work, retry
    from anabranch.chat._web.rate_limits import RateLimits
else:
    _load = lazy_names(
        __name__,
        {
            "._client.chat_client": "ChatClient",
            "._client.chat_reply": "ChatClientError ChatReply",
            "._plugins.plugin": "Plugin PluginBuilder PluginClient make_plugin",
            "._plugins.plugin_answerer": "PluginAnswerer",
            "._plugins.plugin_request": "ElicitId PluginRequest",
            "._terminal.chat_screen": "ChatScreen",
            "._terminal.input_lines": "ChatAnswerer InputLines ScriptedLines TypedLines piped_lines read_script",
            "._terminal.line_loop": "run_lines",
            "._terminal.replies": "LiveReplies Replies",
            "._terminal.session": "Session",
            "._terminal.session_commands": "COMMANDS enter send",
            "._terminal.session_output": "Output SessionError",
            "._terminal.typed_input": "read_answer",
            "._web.access": "LOOPBACK",
            "._web.application": "make_chat_app",
            "._web.conversations": "CONCURRENCY Conversations",
            "._web.open_work": "OpenWork asleep_until cancel open_work retry",
            "._web.rate_limits": "RateLimits",
        },
    )

    def __getattr__(name: str) -> object:
        with needs_extra("chat", f"anabranch.chat.{name}"):
            return _load(name)


__all__ = [
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
    "make_chat_app",
    "make_plugin",
]
