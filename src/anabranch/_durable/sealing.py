"""Tokens that carry the state of a call: sealed, so that no client can read, change or misuse it.

The cryptography is the SDK's AES-256-GCM codec. Every refusal is the same error for the client,
with the reason in one line of the server's log.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from mcp.server.mcpserver import AESGCMRequestStateCodec, InvalidRequestState
from pydantic import BaseModel, ConfigDict, Field

from anabranch._aio import Clock
from anabranch.errors import InvalidTokenError

logger: logging.Logger = logging.getLogger("anabranch.mcp")

SAGAS = "anabranch/saga/v1"
HANDLES = "anabranch/handle/v1"
ASKS = "anabranch/ask/v1"
ROUNDS = "anabranch/round/v1"
"""The purposes of tokens. A purpose is part of the key: a token of another kind cannot be opened."""

SKEW = 60.0
"""Maximum seconds by which another server's clock may be ahead."""

SHORTEST = 32


class Claims(BaseModel):
    """The content of every token; ``state`` is the journal's text, or a reference to it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    issued: float = 0.0
    expires: float = 0.0
    audience: str = ""
    principal: str = ""
    tool: str
    state: str


class SagaClaims(Claims):
    """The content of a saga's token, of a handle, or of a link to a question.

    ``question`` is the step id of the linked question; ``answered`` has digests of results by step id.
    """

    arguments: dict[str, Any] = Field(default_factory=dict)
    question: str = ""
    answered: dict[str, str] = Field(default_factory=dict)


C = TypeVar("C", bound=Claims)


class Sealer:
    """Seals and opens the tokens of one server, the ``audience``.

    The first of ``keys`` seals, all can open. A token of another service with the same keys is refused.
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
        # Each purpose derives its own key, so that no token of another purpose is valid here.
        self._codec = AESGCMRequestStateCodec([_derived(key, purpose) for key in _listed(keys)])
        self._kind = purpose.split("/")[1]
        self._audience = audience
        self._ttl = ttl
        self._clock = clock

    def seal(self, claims: Claims, principal: str, *, until: float | None = None) -> str:
        """Return the token of ``claims``, valid from now on.

        ``until`` is the time when a sleeping call continues: the token is valid for ``ttl`` seconds after.
        """
        now = self._clock.now()
        head = {
            **vars(claims),
            "issued": now,
            "expires": max(now, until or now) + self._ttl,
            "audience": self._audience,
            "principal": principal,
        }
        # Outside of the JSON, since a state can be large, and JSON would escape it.
        state = head.pop("state")
        head = {name: value for name, value in head.items() if value not in ("", {})}
        # Not canonical JSON: arguments stay in their order, which may matter to the tool.
        text = f"{json.dumps(head, separators=(',', ':'))}\n{state}"
        return self._codec.seal(text.encode("utf-8", "surrogatepass"))

    def open(self, token: str, principal: str) -> SagaClaims:
        return self.open_as(SagaClaims, token, principal)

    def open_as(self, shape: type[C], token: str, principal: str) -> C:
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
        logger.warning("a %s token was refused: %s", self._kind, reason)
        return InvalidTokenError()


def has_expired(error: InvalidTokenError) -> bool:
    return isinstance(error.__cause__, TimeoutError)


def _listed(keys: object) -> Sequence[bytes | str]:
    """Return ``keys``, a list of secrets; Python would read one text as a list of letters."""
    if isinstance(keys, str | bytes | bytearray):
        raise TypeError("keys must be a list of secrets, got one secret. Write keys=[…].")
    listed = list(cast("Iterable[object]", keys))
    if not all(isinstance(key, str | bytes | bytearray) for key in listed):
        kinds = ", ".join(sorted({type(key).__name__ for key in listed}))
        raise TypeError(f"keys must be a list of texts or bytes, got a list of {kinds}.")
    return cast("list[bytes | str]", listed)


def _derived(key: bytes | str, purpose: str) -> bytes:
    secret = key.encode() if isinstance(key, str) else bytes(key)
    if len(secret) < SHORTEST:
        return secret  # the codec refuses it, with an explanation
    return hmac.digest(secret, purpose.encode(), hashlib.sha256)
