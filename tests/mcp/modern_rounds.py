"""One round of a call, with the questions and answers of the modern edge."""

from collections.abc import Mapping
from typing import Any

from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch._durable import CallService, Job
from anabranch._engine import Finished, Journal
from anabranch.mcp._eras import ROUND_REPLIES, answers_to


async def run_round(
    service: CallService,
    job: Job,
    journal: Journal,
    responses: Mapping[str, BaseModel] | None = None,
) -> Finished[Any] | InputRequiredResult:
    """Run one round; return the result of the call, or the server's reply with questions."""
    return await service.run_round(job, journal, answers_to(journal, responses), ROUND_REPLIES)
