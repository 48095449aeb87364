"""Tokens that a client carries and cannot read, change, or use elsewhere.

Owns the claims around a saga's state: what it belongs to, how long it is good for, and what was
answered before. The cryptography is in ``cipher.py``. Every refusal is the same error outside; its
reason is one line in the server's log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from anabranch.edges.mcp.cipher import Cipher
from anabranch.errors import InvalidTokenError
from anabranch.ports import Clock

__all__ = ["SagaClaims", "Sealer"]

logger: logging.Logger = logging.getLogger("anabranch.edges.mcp")

PURPOSE = "anabranch/saga/v2"
"""Part of the key: a token of another kind, or with claims in another form, cannot be opened here."""

_as_json = json.JSONEncoder(separators=(",", ":")).encode

SKEW = 60.0
"""Seconds by which another server's clock may be ahead."""


@dataclass(frozen=True, slots=True)
class SagaClaims:
    """What a saga's token says.

    Attributes:
        tool: the tool's name.
        arguments: its arguments, as they were given.
        state: the journal's text, or the reference to it.
        answered: step id to digest of the result that was given for it.
    """

    tool: str
    arguments: dict[str, JsonValue]
    state: str
    answered: dict[str, str] = field(default_factory=dict[str, str])


class Sealer:
    """Seals and opens the tokens of one server, for one caller, and for some time.

    Args:
        keys: at least 32 bytes each; the first seals, all open.
        audience: the server's name: a token of another service with the same keys is refused.
        ttl: seconds that a token is good for.
        clock: time.

    Raises:
        ValueError: a key is too short, is there twice, or there is none.
    """

    def __init__(
        self, keys: Sequence[bytes | str], *, audience: str, ttl: float, clock: Clock
    ) -> None:
        self._cipher = Cipher(keys, PURPOSE)
        self._audience = audience
        self._ttl = ttl
        self._clock = clock

    def seal(self, claims: SagaClaims, principal: str) -> str:
        """Return the token of ``claims``, good from now on for ``principal``; empty if nobody."""
        now = self._clock.now()
        where = [now, now + self._ttl, self._audience, principal]
        # Not the canonical spelling: arguments stay in their order, which the tool may go by.
        head = _as_json([*where, claims.tool, claims.arguments, claims.answered])
        # Beside the JSON, since a state can be large, and would only be escaped there.
        return self._cipher.seal(f"{head}\n{claims.state}".encode("utf-8", "surrogatepass"))

    def open(self, token: str, principal: str) -> SagaClaims:
        """Return the claims of ``token``.

        Raises:
            InvalidTokenError: for whatever reason.
        """
        try:
            opened = self._cipher.open(token).decode("utf-8", "surrogatepass")
        except ValueError as problem:
            raise self._refused(str(problem)) from problem
        head, _, state = opened.partition("\n")
        # Its form needs no check: nobody else has the key of this purpose.
        said: list[Any] = json.loads(head)
        issued, expires, audience, caller, tool, arguments, answered = said
        now = self._clock.now()
        for reason, holds in (
            ("minted in the future", issued <= now + SKEW),
            ("expired", now < expires),
            ("audience", audience == self._audience),
            ("principal", caller == principal),
        ):
            if not holds:
                raise self._refused(reason)
        return SagaClaims(tool, arguments, state, answered)

    @staticmethod
    def _refused(reason: str) -> InvalidTokenError:
        logger.warning("a saga token was refused: %s", reason)
        return InvalidTokenError()
