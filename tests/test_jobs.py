"""Periodic jobs log the first failure of each kind, and the next success."""

import asyncio

import pytest

from anabranch._aio import run_job
from anabranch.errors import StoreError


async def test_a_job_logs_the_first_of_several_failures_and_the_next_success(
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
    await asyncio.create_task(rows())  # the log of another task starts without earlier failures
    assert (
        caplog.messages
        == [
            "job 'the job' failed, and will run again: It is down.",
            "job 'the job' failed, and will run again",
            "job 'the job' works again",
            "job 'the job' failed, and will run again: It is down.",
        ]
        * 2
    )
