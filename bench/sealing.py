"""Sealing a saga's token and opening it again, against AES-256-GCM of the same bytes.

All sides end with bytes that were authenticated and decrypted. Ours also writes and checks what the
token belongs to (tool, arguments, server, caller, time), and spells it as text, since JSON carries it.

    bare       one key, one nonce, one ``encrypt``, one ``decrypt``. The floor, which no token reaches:
               the hardware encrypts faster than any base64 is written or read
    as text    the same, with the standard library's base64 around it: the least that can be sent

The state is as random as text can be, so nothing is won by its shape.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import string
from base64 import b64decode, b64encode

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from anabranch.edges.mcp.sealing import SagaClaims, Sealer
from anabranch.ports import SystemClock
from bench.measure import Row, Times, time_in_turns

NAME = "sealing"
TURNS = 60
SIZES = {1: 300, 10: 200, 100: 50}
"""KiB of state, and how often each is sealed and opened in a turn."""
GOAL = 2


async def measure_size(size: int, times: int) -> Times:
    """Return the times of sealing and opening ``size`` KiB."""
    chance = random.Random(size)
    state = "".join(chance.choices(string.ascii_letters + string.digits, k=size * 1024))
    plain = state.encode()
    sealer = Sealer([secrets.token_bytes(32)], audience="bench", ttl=600, clock=SystemClock())
    cipher = AESGCM(AESGCM.generate_key(256))
    claims = SagaClaims("plan_trip", {"days": 3, "city": "Graz"}, state)

    async def ours() -> None:
        for _ in range(times):
            assert sealer.open(sealer.seal(claims, "somebody"), "somebody").state == state

    async def bare() -> None:
        for _ in range(times):
            nonce = secrets.token_bytes(12)
            assert cipher.decrypt(nonce, cipher.encrypt(nonce, plain, b"bench"), b"bench") == plain

    async def as_text() -> None:
        for _ in range(times):
            nonce = secrets.token_bytes(12)
            sealed = nonce + cipher.encrypt(nonce, plain, b"bench")
            received = b64decode(b64encode(sealed).decode(), validate=True)
            assert cipher.decrypt(received[:12], received[12:], b"bench") == plain

    return await time_in_turns({"ours": ours, "bare": bare, "as text": as_text}, TURNS)


async def rows() -> list[Row]:
    found: list[Row] = []
    for size, number in SIZES.items():
        times = await measure_size(size, number)
        at = f"sealing and opening {size} KiB"
        found += [
            Row(NAME, f"{at} / AES-GCM as text", times.ratio("ours", "as text"), "x", GOAL),
            Row(NAME, f"{at} / bare AES-GCM", times.ratio("ours", "bare"), "x", GOAL),
            Row(NAME, at, times.best("ours") / number * 1e6, "µs"),
        ]
    return found


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    return asyncio.run(rows())
