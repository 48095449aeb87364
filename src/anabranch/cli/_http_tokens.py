"""Bearer tokens over HTTP: those that a server accepts, and the headers that a client sends.

The SDK's own middleware checks them. Each token is a caller of its own: states, sessions and stored
calls are bound to it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch._terminal.exits import UsageError

TOKEN: Final = "ANABRANCH_TOKEN"  # noqa: S105 - the name of a variable

SHORTEST = 16
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.~+/-]+=*")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def read_tokens(text: str | None) -> tuple[str, ...]:
    """Return the tokens in ``text``, which are separated by commas.

    Raises:
        UsageError: one is short, or has characters that a header cannot carry.
    """
    tokens = tuple(each for each in (text or "").split(",") if each)
    for each in tokens:
        if len(each) < SHORTEST:
            raise UsageError(
                f"A token has at least {SHORTEST} characters. Make one: openssl rand -hex 32"
            )
        if not _TOKEN.fullmatch(each):
            raise UsageError("A token consists of letters, digits and -._~+/ (and = at its end).")
    return tokens


class _Tokens:
    """The SDK's verifier of a fixed set of tokens."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._known = [_digest(each) for each in tokens]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what the token is known as; in a time that does not depend on which it is."""
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


def headers_of(token: str | None, lines: Iterable[str]) -> dict[str, str]:
    """Return the headers of a client's requests, given as ``Name: value``.

    Raises:
        UsageError: one is no header.
    """
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name) and value.isprintable() and value.isascii()):
            raise UsageError(f"{name!r} begins no header. Write --header 'Name: value'.")
        headers[name] = value.strip()
    if token is not None:
        (only,) = read_tokens(token) or ("",)
        headers["Authorization"] = f"Bearer {only}"
    return headers
