"""A server that lists one tool with any schema: ``python -m tests.agents.raw_server SCHEMA``."""

import json
import sys
from typing import Any

HANDSHAKE: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "initialize":
            result: dict[str, Any] = {"result": HANDSHAKE}
        case "tools/list":
            tool = {"name": "some", "inputSchema": json.loads(sys.argv[1])}
            result = {"result": {"tools": [tool]}}
        case _:
            result = {"error": {"code": -32601, "message": "unknown"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **result}) + "\n")
    sys.stdout.flush()
