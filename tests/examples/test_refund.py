"""The tool that the README shows."""

from pathlib import Path

import pytest

import examples.refund
from anabranch import Declined
from anabranch.testing import MockClient, run_tool
from examples.refund import refund
from tests.mcp.harness import ERAS, Answers, accept, connected, serving, text_of

ORDER = {"order": "A1", "amount": 20}


@pytest.mark.parametrize("era", ERAS)
async def test_refund_pays_when_the_user_approves(era: str) -> None:
    user = Answers(lambda asked: accept(approve=asked.message == "Refund 20.00 for order A1?"))
    async with connected(serving(refund), era, user) as client:
        result = await client.call_tool("refund", ORDER)
    assert text_of(result) == "Paid 20.00 for order A1."


@pytest.mark.parametrize("answer", [{"approve": False}, Declined()])
async def test_refund_pays_nothing_when_the_user_refuses(
    answer: dict[str, bool] | Declined,
) -> None:
    assert await run_tool(refund, ORDER, MockClient(elicits=[answer])) == "Not refunded."


def test_refund_fits_in_fifteen_lines() -> None:
    text = Path(examples.refund.__file__).read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 15
