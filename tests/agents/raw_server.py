"""A server that lists and returns any JSON: ``python -m tests.agents.raw_server TOOLS [RESULT]``.

Without a result, a call returns its arguments. In the modern era, the first call returns a result that
requires input, and the next call returns the answers.
"""

import json
import sys
from typing import Any

HANDSHAKE: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}
MODERN: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
    "cacheScope": "private",
    "ttlMs": 0,
}
asks = len(sys.argv) > 2 and json.loads(sys.argv[2]).get("resultType") == "input_required"
beside: dict[str, Any] = (
    {"resultType": "complete", "cacheScope": "private", "ttlMs": 0} if asks else {}
)

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "initialize":
            result: dict[str, Any] = {"result": HANDSHAKE}
        case "server/discover" if asks:
            result = {"result": MODERN}
        case "tools/list":
            result = {"result": {"tools": json.loads(sys.argv[1]), **beside}}
        case "tools/call" if "inputResponses" in message["params"]:
            text = json.dumps(message["params"]["inputResponses"])
            result = {"result": {"content": [{"type": "text", "text": text}], **beside}}
        case "tools/call" if len(sys.argv) > 2:
            result = {"result": json.loads(sys.argv[2])}
        case "tools/call":
            text = json.dumps(message["params"].get("arguments"))
            result = {"result": {"content": [{"type": "text", "text": text}]}}
        case _:
            result = {"error": {"code": -32601, "message": "unknown"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **result}) + "\n")
    sys.stdout.flush()
