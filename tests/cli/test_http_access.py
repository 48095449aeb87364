"""``serve --allowed-host`` and ``--allowed-origin`` decide which clients reach a server over HTTP."""

from typing import Any

import httpx2
import pytest
from mcp.server.mcpserver import MCPServer

from anabranch._terminal import UsageError
from anabranch.cli._endpoint import Endpoint, is_loopback
from anabranch.cli._http_access import app_of


async def posted(endpoint: Endpoint, host: str, origin: str | None = None) -> httpx2.Response:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    app = app_of(server, endpoint)
    headers = {"host": host, "accept": "application/json, text/event-stream"}
    if origin is not None:
        headers["origin"] = origin
    transport = httpx2.ASGITransport(app=app)
    async with (
        server.session_manager.run(),
        httpx2.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        return await client.post("/mcp", headers=headers, json={})


PROXIED = Endpoint(
    host="0.0.0.0",  # noqa: S104 - nothing is bound
    allowed_host=["tools.example.org"],
    allowed_origin=["https://app.example.org"],
    stateless=True,
)


@pytest.mark.parametrize("host", ["localhost:8000", "tools.example.org", "tools.example.org:443"])
@pytest.mark.parametrize("origin", [None, "https://app.example.org", "https://tools.example.org"])
async def test_known_names_and_origins_pass(host: str, origin: str | None) -> None:
    assert (await posted(PROXIED, host, origin)).status_code not in {403, 421}


async def test_another_host_name_is_refused_with_the_option_to_set() -> None:
    refused = await posted(PROXIED, "evil.example")
    assert refused.status_code == 421
    assert "--allowed-host NAME" in refused.text


async def test_another_origin_is_refused_with_the_option_to_set() -> None:
    refused = await posted(PROXIED, "localhost:1", "https://evil.example")
    assert refused.status_code == 403
    assert "--allowed-origin ORIGIN" in refused.text


async def test_a_wildcard_host_accepts_every_name() -> None:
    assert (await posted(Endpoint(allowed_host=["*"]), "evil.example")).status_code != 421


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "tools.example.org"])  # noqa: S104
def test_a_public_address_requires_an_allowed_host(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(UsageError, match=r"--allowed-host NAME.* Also give a --token"):
        Endpoint("http", host).check()
    with pytest.raises(UsageError, match=r"--allowed-host NAME.* any other host name\.$"):
        Endpoint("http", host, token="0123456789abcdef").check()


def test_an_address_in_place_of_a_host_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'https://t\.example' is not the name of a host\."):
        Endpoint("http", allowed_host=["https://t.example"]).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_needs_no_name(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("stateless", [True, False])
async def test_a_stateless_server_offers_no_session(stateless: bool) -> None:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    app = app_of(server, Endpoint(stateless=stateless, session_ttl=60))
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    headers = {"host": "localhost", "accept": "application/json, text/event-stream"}
    transport = httpx2.ASGITransport(app=app)
    async with (
        server.session_manager.run(),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        reply = await client.post("/mcp", headers=headers, json=request)
    assert reply.status_code == 200
    assert ("mcp-session-id" in reply.headers) is not stateless


CLIENT = {"name": "test", "version": "0"}
