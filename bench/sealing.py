"""Sealing a saga's token and opening it again, against AES-256-GCM of the same bytes and no more.

Both sides end with bytes that were authenticated and decrypted. Ours also writes and checks what the
token belongs to (tool, arguments, server, caller, time), and writes it as text, since JSON carries
it; the floor does neither: one key, one nonce, one ``encrypt``, one ``decrypt``. The state is as
random as text can be, so nothing is won by its shape.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import string

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from anabranch.edges.mcp.sealing import SagaClaims, Sealer
from anabranch.ports import SystemClock
from bench.measure import Row, time_in_turns

NAME = "sealing"
TURNS = 60
SIZES = {1: 300, 10: 200, 100: 50}
"""KiB of state, and how often each is sealed and opened in a turn."""
GOAL = 2


async def ratio(size: int, times: int) -> tuple[float, float]:
    """Return the ratio to the floor, and the µs of sealing and opening ``size`` KiB."""
    chance = random.Random(size)
    state = "".join(chance.choices(string.ascii_letters + string.digits, k=size * 1024))
    plain = state.encode()
    sealer = Sealer([secrets.token_bytes(32)], audience="bench", ttl=600, clock=SystemClock())
    cipher = AESGCM(AESGCM.generate_key(256))
    claims = SagaClaims(tool="plan_trip", arguments={"days": 3, "city": "Graz"}, state=state)

    async def ours() -> None:
        for _ in range(times):
            assert sealer.open(sealer.seal(claims, "somebody"), "somebody").state == state

    async def floor() -> None:
        for _ in range(times):
            nonce = secrets.token_bytes(12)
            assert cipher.decrypt(nonce, cipher.encrypt(nonce, plain, b"bench"), b"bench") == plain

    measured = await time_in_turns({"ours": ours, "floor": floor}, TURNS)
    return measured.ratio("ours", "floor"), measured.best("ours") / times * 1e6


async def rows() -> list[Row]:
    found: list[Row] = []
    for size, times in SIZES.items():
        compared, micros = await ratio(size, times)
        at = f"sealing and opening {size} KiB"
        found.append(Row(NAME, f"{at} / bare AES-GCM", compared, "x", GOAL))
        found.append(Row(NAME, at, micros, "µs"))
    return found


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    return asyncio.run(rows())
