"""A server that lists and returns any JSON: ``python -m tests.agents.raw_server TOOLS [RESULT]``.

Without a result, a call returns its arguments.
"""

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
            result = {"result": {"tools": json.loads(sys.argv[1])}}
        case "tools/call" if len(sys.argv) > 2:
            result = {"result": json.loads(sys.argv[2])}
        case "tools/call":
            text = json.dumps(message["params"].get("arguments"))
            result = {"result": {"content": [{"type": "text", "text": text}]}}
        case _:
            result = {"error": {"code": -32601, "message": "unknown"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **result}) + "\n")
    sys.stdout.flush()
