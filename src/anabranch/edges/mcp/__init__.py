"""The Model Context Protocol edge, in both eras. ``anabranch.mcp`` is its public face.

render.py      asks as MCP requests, MCP results as answers
arguments.py   the author's parameters as the SDK wants them
handshake.py   up to 2025-11-25: the client is asked over requests while the body waits
rounds.py      2026-07-28: the client is asked by the result, and retries with its answers
sagas.py       tools/callSaga and tools/resumeSaga; saga_params.py what they are sent, results.py
               what they return, sealing.py their tokens
logs.py        the level of the client's log, where the client sets it once for all calls
server.py      tools into an ``MCPServer``
client.py      the calling side
answering.py   what servers ask, in this library's words, and replies in the protocol's
saga_client.py the calling side of sagas
"""
