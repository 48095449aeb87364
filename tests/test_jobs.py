"""Periodic jobs: the log has the first failure of each kind, and the next success."""

import asyncio

import pytest

from anabranch._aio import run_job
from anabranch.errors import StoreError


async def test_of_failures_in_a_row_the_first_is_logged_and_their_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def down() -> None:
        raise StoreError("It is down.")

    async def broken() -> None:
        raise KeyError("no")

    async def works() -> None:
        await asyncio.sleep(0)

    async def rows() -> None:
        for job in (works, down, down, down, broken, broken, down, works, works, down):
            await run_job("the job", job)

    await asyncio.create_task(rows())
    await asyncio.create_task(rows())  # another loop knows nothing of this one
    assert (
        caplog.messages
        == [
            "the job: not done this time, and tried again: It is down.",
            "the job: not done this time, and tried again",
            "the job: done again",
            "the job: not done this time, and tried again: It is down.",
        ]
        * 2
    )
