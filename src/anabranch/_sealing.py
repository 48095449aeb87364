"""Tokens that carry the state of a call: sealed, so that no client can read, change or misuse it.

A token carries claims around the state of a call: its tool and caller, its expiry, and the earlier
answers. The cryptography is the SDK's AES-256-GCM codec. Every refusal is the same error for the
client, with the reason in one line of the server's log.
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
    """The content of every token.

    Attributes:
        tool: the tool's name.
        state: the journal's text, or a reference to it.
        issued, expires: seconds since the epoch.
        audience: the server that the token is for.
        principal: the caller who may present the token; empty without authentication.
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
        arguments: the tool's arguments, as given.
        question: the step id of the linked question.
        answered: step id to digest of its given result.
    """

    arguments: dict[str, Any] = Field(default_factory=dict)
    question: str = ""
    answered: dict[str, str] = Field(default_factory=dict)


C = TypeVar("C", bound=Claims)


class Sealer:
    """Seals and opens the tokens of one server.

    Args:
        keys: at least 32 bytes each; the first seals, all can open.
        audience: the server's name: a token of another service with the same keys is refused.
        ttl: seconds for which a token is valid.
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

        With ``until``, the time when a sleeping call continues, the token is valid for ``ttl``
        seconds after it.
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
        """Return the claims of ``token``; raises like :meth:`open_as`."""
        return self.open_as(SagaClaims, token, principal)

    def open_as(self, shape: type[C], token: str, principal: str) -> C:
        """Return the claims of ``token``, checked to be of the type ``shape``.

        Raises:
            InvalidTokenError: if the token is malformed, expired, or for another server or caller.
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
        """Log the reason of a refusal, and return the one error for all refusals."""
        logger.warning("a %s token was refused: %s", self._kind, reason)
        return InvalidTokenError()


def has_expired(error: InvalidTokenError) -> bool:
    """Return whether the server refused a token only because of its age."""
    return isinstance(error.__cause__, TimeoutError)


def _listed(keys: object) -> Sequence[bytes | str]:
    """Return ``keys``, a list of secrets.

    Python would read one text or bytes as a list of letters or numbers.

    Raises:
        TypeError: if ``keys`` is one secret, or an entry is no secret.
    """
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
