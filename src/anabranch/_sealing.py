"""Tokens that carry the state of a call: sealed, so that no client reads, changes or misuses them.

A token carries claims around the state of a call: what it belongs to, when it expires, and what was
answered before. The cryptography is the SDK's AES-256-GCM codec. Every refusal is the same error
for the client; its reason is one line in the server's log.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from mcp.server.mcpserver import AESGCMRequestStateCodec, InvalidRequestState
from pydantic import BaseModel, ConfigDict, Field

from anabranch._aio import Clock
from anabranch.errors import InvalidTokenError

logger: logging.Logger = logging.getLogger("anabranch.mcp")

SAGAS = "anabranch/saga/v1"
HANDLES = "anabranch/handle/v1"
ASKS = "anabranch/ask/v1"
ROUNDS = "anabranch/round/v1"
"""What tokens are for. It is part of the key: a token of another kind cannot be opened."""

SKEW = 60.0
"""Seconds by which another server's clock may be ahead."""

SHORTEST = 32


class Claims(BaseModel):
    """The content of every token.

    Attributes:
        tool: the tool's name.
        state: the journal's text, or the reference to it.
        issued, expires: seconds since the epoch.
        audience: the server that it is for.
        principal: who may present it; empty without authentication.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    issued: float = 0.0
    expires: float = 0.0
    audience: str = ""
    principal: str = ""
    tool: str
    state: str


class SagaClaims(Claims):
    """The content of a saga's token, of a handle, or of a link to a question.

    Attributes:
        arguments: the tool's arguments, as they were given.
        question: the step id of the question that a link is to.
        answered: step id to digest of the result that was given for it.
    """

    arguments: dict[str, Any] = Field(default_factory=dict)
    question: str = ""
    answered: dict[str, str] = Field(default_factory=dict)


C = TypeVar("C", bound=Claims)


class Sealer:
    """Seals and opens the tokens of one server.

    Args:
        keys: at least 32 bytes each; the first seals, all open.
        audience: the server's name: a token of another service with the same keys is refused.
        ttl: seconds for which a token is valid.
        clock: time.
        purpose: what the tokens are for.
    """

    def __init__(
        self,
        keys: Sequence[bytes | str],
        *,
        audience: str,
        ttl: float,
        clock: Clock,
        purpose: str = SAGAS,
    ) -> None:
        # Each purpose has a key of its own, so that no other token of these keys is valid here.
        self._codec = AESGCMRequestStateCodec([_derived(key, purpose) for key in keys])
        self._kind = purpose.split("/")[1]
        self._audience = audience
        self._ttl = ttl
        self._clock = clock

    def seal(self, claims: Claims, principal: str, *, until: float | None = None) -> str:
        """Return the token of ``claims``, valid from now on.

        It is valid for as long as any other after ``until``, when a call that sleeps continues.
        """
        now = self._clock.now()
        head = {
            **vars(claims),
            "issued": now,
            "expires": max(now, until or now) + self._ttl,
            "audience": self._audience,
            "principal": principal,
        }
        # Beside the JSON, since a state can be large, and JSON would escape it.
        state = head.pop("state")
        head = {name: value for name, value in head.items() if value not in ("", {})}
        # Not the canonical spelling: arguments stay in their order, which may matter to the tool.
        text = f"{json.dumps(head, separators=(',', ':'))}\n{state}"
        return self._codec.seal(text.encode("utf-8", "surrogatepass"))

    def open(self, token: str, principal: str) -> SagaClaims:
        """Return the claims of ``token``; raises as :meth:`open_as`."""
        return self.open_as(SagaClaims, token, principal)

    def open_as(self, shape: type[C], token: str, principal: str) -> C:
        """Return the claims of ``token``, which have this ``shape``.

        Raises:
            InvalidTokenError: it is malformed, expired, or for another server or caller.
        """
        try:
            opened = self._codec.unseal(token).decode("utf-8", "surrogatepass")
            head, _, state = opened.partition("\n")
            claims = shape.model_validate({**json.loads(head), "state": state})
        except (InvalidRequestState, ValueError, TypeError, RecursionError) as problem:
            raise self.refused(type(problem).__name__) from problem
        now = self._clock.now()
        for reason, holds in {
            "minted in the future": claims.issued <= now + SKEW,
            "audience": claims.audience == self._audience,
            "principal": claims.principal == principal,
        }.items():
            if not holds:
                raise self.refused(reason)
        if now >= claims.expires:
            raise self.refused("expired") from TimeoutError()
        return claims

    def refused(self, reason: str) -> InvalidTokenError:
        """Log why a token is refused, and return the one error for it."""
        logger.warning("a %s token was refused: %s", self._kind, reason)
        return InvalidTokenError()


def has_expired(error: InvalidTokenError) -> bool:
    """Return whether a token was refused only since its time is over: its own caller has shown it."""
    return isinstance(error.__cause__, TimeoutError)


def _derived(key: bytes | str, purpose: str) -> bytes:
    secret = key.encode() if isinstance(key, str) else bytes(key)
    if len(secret) < SHORTEST:
        return secret  # refused by the codec, with its explanation
    return hmac.digest(secret, purpose.encode(), hashlib.sha256)
