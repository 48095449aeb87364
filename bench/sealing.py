"""Sealing a saga's token and opening it again, against bare AES-256-GCM of the same bytes.

Both sides end with authenticated, decrypted bytes. Ours also writes and checks the token's binding (tool,
arguments, server, caller, time), and writes the token as text for JSON. The lower bound has one key, one
nonce, one ``encrypt``, one ``decrypt``. The state is random text, so its shape saves nothing.

A second row compares with the SDK's codec alone, which seals the same bytes and writes them in base64.
Python's base64 takes several times as long as the cipher. The codec also writes each token that it has read once
more, so that each token has one spelling only.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import string

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from mcp.server.mcpserver import AESGCMRequestStateCodec

from anabranch._aio import SystemClock
from anabranch._durable import SagaClaims, Sealer
from bench.measure import Row, Times, time_in_turns

NAME = "sealing"
TURNS = 60
SIZES = {1: 300, 10: 200, 100: 50}
"""KiB of state, and how often each is sealed and opened in a turn."""
GOAL = 2


async def compared(size: int, times: int) -> Times:
    """Return the times of sealing and opening ``size`` KiB, ``times`` times."""
    chance = random.Random(size)
    state = "".join(chance.choices(string.ascii_letters + string.digits, k=size * 1024))
    plain = state.encode()
    sealer = Sealer([secrets.token_bytes(32)], audience="bench", ttl=600, clock=SystemClock())
    cipher = AESGCM(AESGCM.generate_key(256))
    codec = AESGCMRequestStateCodec([secrets.token_bytes(32)])
    claims = SagaClaims(tool="plan_trip", arguments={"days": 3, "city": "Graz"}, state=state)

    async def ours() -> None:
        for _ in range(times):
            assert sealer.open(sealer.seal(claims, "somebody"), "somebody").state == state

    async def floor() -> None:
        for _ in range(times):
            nonce = secrets.token_bytes(12)
            assert cipher.decrypt(nonce, cipher.encrypt(nonce, plain, b"bench"), b"bench") == plain

    async def sdk() -> None:
        for _ in range(times):
            assert codec.unseal(codec.seal(plain)) == plain

    return await time_in_turns({"ours": ours, "floor": floor, "sdk": sdk}, TURNS)


async def rows() -> list[Row]:
    found: list[Row] = []
    for size, times in SIZES.items():
        measured = await compared(size, times)
        at = f"sealing and opening {size} KiB"
        found += [
            Row(NAME, f"{at} / bare AES-GCM", measured.ratio("ours", "floor"), "x", GOAL),
            Row(NAME, f"{at} / the SDK's codec", measured.ratio("ours", "sdk")),
            Row(NAME, at, measured.best("ours") / times * 1e6, "µs"),
        ]
    return found


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
