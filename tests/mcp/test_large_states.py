"""The server does not send a state that the transport would refuse: the round fails, and its steps
are undone.

Source: SEP-2322, the state travels in the body of the next request; the SDK accepts 4 MiB by
default.
"""

from typing import Any

import pytest

from anabranch import Accepted, BranchContext, tool
from tests.mcp.asking import Ok
from tests.mcp.harness import MODERN, Answers, accept, connected, http, over, serving, text_of
from tests.sagas.harness import accepted, call_saga, resume_saga

LARGE = 6_000_000


class Office:
    """Books, and produces reports."""

    def __init__(self) -> None:
        self.booked: list[str] = []

        def book(seat: str) -> str:
            self.booked.append(seat)
            return seat

        async def report(length: int, of: str) -> str:
            return of * length

        @tool
        async def travel(ctx: BranchContext, length: int, of: str = "x", note: str = "") -> int:
            """Book, read a report, ask, and return the length of the report."""
            await ctx.step(book, "12A", undo=self.booked.remove)
            text = await ctx.step(report, length, of)
            answer = await ctx.elicit(Ok, "Go?")
            return len(text) + len(note) if isinstance(answer, Accepted) else 0

        self.travel = travel

    def serving(self, **options: Any) -> Any:
        return serving(self.travel, **options)


def yes(_: Any) -> Any:
    return accept(ok=True)


async def test_a_round_fails_and_is_undone_when_its_state_is_too_large_for_http() -> None:
    office = Office()
    async with http(office.serving()) as url, connected(url, MODERN, Answers(yes)) as client:
        result = await client.call_tool("travel", {"length": LARGE})
        saga = await call_saga(client, "travel", {"length": LARGE})
        assert office.booked == []
        assert text_of(await client.call_tool("travel", {"length": 5})) == "5"
    assert office.booked == ["12A"]
    assert result.is_error
    for text in (text_of(result), str(saga)):
        assert "'travel/report.1' takes 6,000,002" in text
        assert "at most 4,194,304" in text
        assert "store=" in text
        assert "a reference" in text


@pytest.mark.parametrize(
    ("transport", "options"), [("http", {"store": "memory:"}), ("in process", {})]
)
async def test_a_large_value_survives_when_no_request_has_to_carry_it(
    transport: str, options: Any
) -> None:
    office = Office()
    async with (
        over(transport, office.serving(**options)) as place,
        connected(place, MODERN, Answers(yes)) as client,
    ):
        assert text_of(await client.call_tool("travel", {"length": LARGE})) == str(LARGE)
    assert office.booked == ["12A"]


@pytest.mark.parametrize("of", ["x", '"', "\n", "\N{SNOWMAN}"])
@pytest.mark.parametrize("noted", [0, 1_500_000])
async def test_a_server_accepts_every_state_that_it_sent_at_any_size(of: str, noted: int) -> None:
    office, ended = Office(), list[bool]()
    async with http(office.serving()) as url, connected(url, MODERN, Answers(yes)) as client:
        for length in range(100_000, 3_200_000, 500_000):
            office.booked.clear()
            arguments = {"length": length, "of": of, "note": "n" * noted}
            result = await client.call_tool("travel", arguments)
            ended.append(not result.is_error)
            if result.is_error:
                assert "The state of this call takes" in text_of(result)
                assert office.booked == []
                break
            assert text_of(result) == str(length + noted)
            saga = await call_saga(client, "travel", arguments)
            if "sagaToken" in saga:
                done = accepted(saga["steps"][0]["stepId"], ok=True)
                saga = await resume_saga(client, saga["sagaToken"], done)
                assert saga["structuredContent"] == {"result": length + noted}
            else:  # a saga's token also has the arguments
                assert "The state of this call takes" in str(saga)
    assert ended[0]
    assert not ended[-1]


async def test_a_larger_request_is_expected_when_the_transport_takes_it() -> None:
    office, limit = Office(), 16 * 2**20
    async with (
        http(office.serving(max_request=limit), max_request_body_size=limit) as url,
        connected(url, MODERN, Answers(yes)) as client,
    ):
        assert text_of(await client.call_tool("travel", {"length": LARGE})) == str(LARGE)
