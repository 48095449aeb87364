"""Bytes as a text that only who has the keys can read, or make.

Owns the cryptography of our own tokens: AES-256-GCM under keys derived for one purpose, a ring of
them, and one spelling for each token. What the bytes say, and how long they are good for, is known
elsewhere. The state of ``tools/call`` is sealed by the server's SDK, not here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic_core import CoreConfig, SchemaValidator, core_schema, to_json

__all__ = ["Cipher"]

SHORTEST: Final = 32
PREFIX: Final = "v1."
_NAME, _NONCE, _TAG = 4, 12, 16

# The standard library's base64 takes ten times as long as the encryption, and pydantic's a third of
# that. It reads and writes base64 in JSON strings.
_BYTES = SchemaValidator(core_schema.bytes_schema(), CoreConfig(val_json_bytes="base64"))


class Cipher:
    """Seals and opens.

    Args:
        keys: at least 32 bytes each; the first seals, all open.
        purpose: part of each key, so that no token for another purpose can be opened.

    Raises:
        ValueError: a key is too short, is there twice, or there is none.
    """

    def __init__(self, keys: Sequence[bytes | str], purpose: str) -> None:
        if not keys:
            raise ValueError("Sealing takes at least one key.")
        self._ring: dict[bytes, tuple[AESGCM, bytes]] = {}
        for place, key in enumerate(keys):
            secret = key.encode() if isinstance(key, str) else bytes(key)
            if len(secret) < SHORTEST:
                raise ValueError(
                    f"A key must have at least {SHORTEST} bytes; keys[{place}] has"
                    f" {len(secret)}. Make one with:"
                    ' python -c "import secrets; print(secrets.token_hex(32))"'
                )
            derived = HKDF(SHA256(), 32, salt=None, info=purpose.encode()).derive(secret)
            name = hashlib.sha256(b"name of " + derived).digest()[:_NAME]
            if name in self._ring:
                raise ValueError(f"keys[{place}] is there twice.")
            # The name of the key is sealed as well: a token fits one place of the ring.
            self._ring[name] = AESGCM(derived), PREFIX.encode() + name
        self._first = next(iter(self._ring))

    def seal(self, plain: bytes) -> str:
        """Return ``plain`` as a token."""
        cipher, bound = self._ring[self._first]
        nonce = os.urandom(_NONCE)
        return PREFIX + _to_text(self._first + nonce + cipher.encrypt(nonce, plain, bound))

    def open(self, token: str) -> bytes:
        """Return what :meth:`seal` was given.

        Raises:
            ValueError: saying why not; for the server's log.
        """
        if not token.startswith(PREFIX):
            raise ValueError("malformed")
        raw = _from_text(token[len(PREFIX) :])
        if len(raw) < _NAME + _NONCE + _TAG:
            raise ValueError("malformed")
        known = self._ring.get(raw[:_NAME])
        if known is None:
            raise ValueError("sealed with an unknown key")
        cipher, bound = known
        try:
            return cipher.decrypt(raw[_NAME : _NAME + _NONCE], raw[_NAME + _NONCE :], bound)
        except InvalidTag:
            raise ValueError("not as it was sealed") from None


def _to_text(raw: bytes) -> str:
    return to_json(raw, bytes_mode="base64")[1:-1].decode("ascii")


def _from_text(text: str) -> bytes:
    """Return the bytes of the one spelling that :func:`_to_text` gives them.

    Raises:
        ValueError: it is another.
    """
    # What JSON would read as something else, the letters of the other alphabet, missing padding.
    if "\\" in text or "+" in text or "/" in text or len(text) % 4:
        raise ValueError("malformed")
    try:
        return _BYTES.validate_json(f'"{text}"')  # type: ignore[no-any-return]
    except ValueError:
        raise ValueError("malformed") from None
