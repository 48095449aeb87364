"""Serve tools over the Model Context Protocol (MCP), and call a server's tools as sagas.

    server = create_server("travel", [book_flight], keys=[...])
    server.run("stdio")                            # an ordinary mcp MCPServer

    install(existing_server, book_flight)          # or add to one you have

    fastmcp.add_tool(as_fastmcp_tool(book_flight)) # or to a FastMCP server (extra ``fastmcp``)
    install_fastmcp(fastmcp, book_flight, keys=[...])

All three serve clients of every revision of MCP, before and after 2026-07-28. Any ``mcp.Client``
can call the tools. In a saga call, one reply lists all questions of a round, and the client sends
all answers back:

    result = await SagaClient(client, answerer).call_tool("book_flight", {"destination": "Oslo"})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch._durable import Durability
    from anabranch.mcp._client import (
        MAX_ROUNDS,
        Connectable,
        Era,
        call_tool,
        connect,
        list_tools,
        offers_sagas,
    )
    from anabranch.mcp._defaults import GRACE, HEARTBEAT, TTL, Ask, SamplerMode
    from anabranch.mcp._eras import UNASKED, Reply, Request, RoundOfAnswers, requests_of
    from anabranch.mcp._installation import Installation
    from anabranch.mcp._odd_answers import has_structured_content
    from anabranch.mcp._options import ServerKeywords, ServerOptions, ToolKeywords, completed_by
    from anabranch.mcp._saga_client import SagaClient, SagaRoundsExceededError, Turn
    from anabranch.mcp._saga_shapes import (
        CallToolSagaParams,
        ResumeToolSagaParams,
        SagaError,
        SagaStepError,
        SagaStepResult,
        ToolCallSagaResult,
    )
    from anabranch.mcp._server import (
        as_fastmcp_tool,
        create_server,
        fastmcp_sagas,
        install,
        install_fastmcp,
    )
    from anabranch.mcp._tool_server import ToolServer
    from anabranch.mcp._transports import (
        COMMAND,
        PAUSES,
        Remembering,
        Started,
        WithHeaders,
        causes,
        command_of,
        is_lost,
        new_key,
        takes_key,
    )
    from anabranch.mcp._unfinished import ANSWER_QUESTIONS, CONTINUE_CALL, UNFINISHED, is_unfinished
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "anabranch._durable": "Durability",
            "._client": "Connectable Era MAX_ROUNDS call_tool connect list_tools offers_sagas",
            "._defaults": "GRACE HEARTBEAT TTL Ask SamplerMode",
            "._installation": "Installation",
            "._odd_answers": "has_structured_content",
            "._options": "ServerKeywords ServerOptions ToolKeywords completed_by",
            "._eras": "Reply Request RoundOfAnswers UNASKED requests_of",
            "._saga_client": "SagaClient SagaRoundsExceededError Turn",
            "._saga_shapes": (
                "CallToolSagaParams ResumeToolSagaParams SagaError "
                "SagaStepError SagaStepResult ToolCallSagaResult"
            ),
            "._server": "as_fastmcp_tool create_server fastmcp_sagas install install_fastmcp",
            "._tool_server": "ToolServer",
            "._transports": (
                "COMMAND PAUSES Remembering Started WithHeaders "
                "causes command_of is_lost new_key takes_key"
            ),
            "._unfinished": "ANSWER_QUESTIONS CONTINUE_CALL UNFINISHED is_unfinished",
        },
    )

__all__ = [
    "Durability",
    "Installation",
    "ResumeToolSagaParams",
    "SagaClient",
    "SagaRoundsExceededError",
    "SagaStepError",
    "SagaStepResult",
    "ServerKeywords",
    "ServerOptions",
    "ToolKeywords",
    "Turn",
    "as_fastmcp_tool",
    "create_server",
    "fastmcp_sagas",
    "install",
    "install_fastmcp",
]
