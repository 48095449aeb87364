"""Serve tools over the Model Context Protocol.

    server = create_server("travel", [book_flight], keys=[...])
    server.run("stdio")                            # an ordinary mcp MCPServer

    install(existing_server, book_flight)          # or add to one you have

Both serve clients of the handshake era and of the stateless one.
"""

from anabranch.edges.mcp.server import create_server, install

__all__ = ["create_server", "install"]
