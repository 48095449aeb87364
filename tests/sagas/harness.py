"""Saga methods as a client sends them, and what comes back, byte for byte but for the envelope."""

from typing import Any

import mcp_types as types
from mcp import Client
from pydantic import ConfigDict

RESULT_TYPE = "resultType"
"""Stamped by the SDK on every result of the modern era, also on a suspended saga's."""


class _Request(types.Request[dict[str, Any], str]):
    method: str
    params: dict[str, Any]


class _Result(types.Result):
    model_config = ConfigDict(extra="allow")


async def raw(client: Client, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request as it is; return the result as it came, without what the SDK stamps."""
    request = _Request(method=method, params=params)
    result = await client.session.send_request(request, _Result)
    found = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    found.pop(RESULT_TYPE, None)
    found.pop("_meta", None)
    return found


async def call_saga(client: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Begin a saga."""
    return await raw(client, "tools/callSaga", {"name": name, "arguments": arguments})


async def resume_saga(client: Client, token: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """Go on with a saga; ``steps`` are all that are completed."""
    params = {"sagaToken": token, "completedSteps": list(steps)}
    return await raw(client, "tools/resumeSaga", params)
