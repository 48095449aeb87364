"""Who answers a call. Each edge carries asks out and answers in, and drives the same machine.

opening.py   a tool, its arguments and a journal become a call: the same for all edges
direct.py    in this process: any object that answers
mcp/         the Model Context Protocol, in its handshake and its stateless era
"""
