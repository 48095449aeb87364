"""The Model Context Protocol edge, in both eras. ``anabranch.mcp`` is its public face.

What becomes of a request:

    request.py       one ``tools/call``, whatever server it came to
    serving.py       a live call, or a round of a stateless one
    handshake.py     up to 2025-11-25: the client is asked over requests while the body waits
    rounds.py        2026-07-28: the client is asked by the result, and retries with its answers
    sagas.py         ``tools/callSaga`` and ``tools/resumeSaga``; saga_params.py what they are sent,
                     results.py what they return, sealing.py their tokens,
                     cipher.py the cryptography of these
    continuing.py    more rounds than a client allows
    telling.py       errors, in the words of the era and the host
    render.py        asks as MCP requests, MCP results as answers
    logs.py          the level of the client's log, where the client sets it once for all calls

The hosts:

    installation.py  what the tools of one server share
    server.py        tools into an ``MCPServer``
    arguments.py     the author's parameters as the SDK wants them
    fastmcp.py       tools into a FastMCP server, an extra
    fastmcp_host.py  FastMCP's own types, with ours behind them

The other side:

    client.py        the calling side
    answering.py     what servers ask, in this library's words, and replies in the protocol's
    saga_client.py   the calling side of sagas
"""
