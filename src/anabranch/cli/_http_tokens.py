"""Bearer tokens over HTTP: checks those of requests to a server.

The SDK's own middleware checks them. Each token is a caller of its own: states, sessions and stored
calls are bound to it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class _Tokens:
    """The SDK's verifier of a fixed set of tokens."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._known = [_digest(each) for each in tokens]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the name of a token, in a time that does not depend on the token."""
        given = _digest(token)
        if not any([hmac.compare_digest(given, each) for each in self._known]):  # noqa: C419 - all
            return None
        return AccessToken(token=token, client_id=f"token-{given.hex()[:32]}", scopes=[])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def authenticated(app: ASGIApp, tokens: Iterable[str]) -> ASGIApp:
    """Return ``app`` for requests with one of the tokens; others get 401, as the SDK says it."""
    guarded = AuthenticationMiddleware(
        AuthContextMiddleware(RequireAuthMiddleware(app, [])),
        backend=BearerAuthBackend(_Tokens(tokens)),
    )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (guarded if scope["type"] == "http" else app)(scope, receive, send)

    return serve
