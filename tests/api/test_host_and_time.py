"""Capabilities of a host, the system's clock and ids, and the test doubles for both."""

import asyncio

import pytest

from anabranch import Capabilities, CapabilityError
from anabranch._aio import SystemClock, SystemIds
from anabranch._asking import Host
from anabranch.messages import SampleReply, SampleRequest, user
from anabranch.testing import ManualClock, SequentialIds

NOTHING = Capabilities(
    sampling=False, sampling_tools=False, elicitation=False, elicitation_url=False
)


class Own:
    async def sample(self, request: SampleRequest) -> SampleReply:
        return SampleReply.model_validate({"content": "own"})


def test_a_host_offers_the_capabilities_of_its_client() -> None:
    host = Host(Capabilities(elicitation_url=False))
    host.require("sampling", "sampling.tools", "elicitation")
    with pytest.raises(CapabilityError, match=r"'elicitation\.url'"):
        host.require("elicitation", "elicitation.url")


def test_a_servers_sampler_provides_plain_sampling_only() -> None:
    host = Host(NOTHING, Own())
    host.require("sampling", "sampling.tools")
    with pytest.raises(CapabilityError, match="'elicitation'"):
        host.require("elicitation")
    assert NOTHING.names() == frozenset()


async def test_a_host_without_a_sampler_answers_nothing_itself() -> None:
    """A request to a host without a sampler is a bug of the library."""
    request = SampleRequest(messages=(user("x"),), max_tokens=1)
    with pytest.raises(CapabilityError, match="'sampling'"):
        await Host().respond(request)
    answered = await Host(NOTHING, Own()).respond(request)
    assert answered.error is None


def test_a_manual_clock_stands_until_it_is_moved_and_rings_in_order() -> None:
    clock = ManualClock(start=100.0)
    rung: list[str] = []
    clock.call_at(103, lambda: rung.append(f"b at {clock.now():g}"))
    clock.call_at(102, lambda: rung.append(f"a at {clock.now():g}"))
    clock.call_at(102, lambda: clock.advance(0))
    clock.call_at(104, lambda: rung.append("cancelled")).cancel()
    clock.call_at(99, lambda: rung.append("at once"))
    assert (clock.now(), rung) == (100, ["at once"])
    clock.advance(2)
    assert rung == ["at once", "a at 102"]
    clock.advance(10)
    assert rung == ["at once", "a at 102", "b at 103"]
    assert clock.now() == 112


def test_an_alarm_can_set_another_that_rings_in_the_same_move() -> None:
    """An alarm that another alarm sets rings within the same move of the clock."""
    clock = ManualClock(start=0.0)
    rung: list[float] = []

    def set_another() -> None:
        clock.call_at(2, lambda: rung.append(clock.now()))

    clock.call_at(1, set_another)
    clock.advance(5)
    assert (rung, clock.now()) == ([2.0], 5.0)


def test_sequential_ids_count_calls() -> None:
    ids = SequentialIds()
    assert [ids.call_id(), ids.call_id()] == ["call_1", "call_2"]
    assert SequentialIds().call_id() == "call_1"


def test_the_systems_ids_are_long_and_differ() -> None:
    """A call's id must be hard to guess."""
    made = {SystemIds().call_id() for _ in range(100)}
    assert len(made) == 100
    assert all(name.startswith("call_") and len(name) == 17 for name in made)


async def test_the_systems_clock_rings_on_the_running_loop_unless_cancelled() -> None:
    clock = SystemClock()
    rung, last = list[str](), asyncio.Event()
    clock.call_at(clock.now() - 2, lambda: rung.append("cancelled")).cancel()
    clock.call_at(clock.now() - 1, lambda: rung.append("due"))
    late = clock.call_at(clock.now() + 3600, lambda: rung.append("late"))
    clock.call_at(clock.now(), last.set)
    await last.wait()
    late.cancel()
    assert rung == ["due"]
