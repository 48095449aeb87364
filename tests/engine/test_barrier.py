"""The server answers a question only after all simultaneous questions are admitted."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from anabranch._budget import Limits
from anabranch._engine import Answer, Branch, survey
from tests.engine.harness import World, ask, gather, here, hot, loudly, rounds, step

Body = Callable[[Branch], Coroutine[Any, Any, Any]]
Respond = Callable[[str], Awaitable[Answer]]

BUDGET = Limits(max_tokens=1_000)


async def cold(body: Body, *, world: World) -> Any:
    return (await rounds(body, world=world)).value


EDGES = pytest.mark.parametrize("drive", [cold, hot])


class Server:
    """A server that answers questions, and records when each is admitted and answered."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    async def respond(self, question: str) -> Answer:
        self.noted.append(f"answer {question}")
        return loudly(question)

    async def ask(self, question: str, respond: Respond | None = None, passes: int = 0) -> Any:
        for _ in range(passes):
            await asyncio.sleep(0)

        def admit() -> str:
            self.noted.append(f"admit {question}")
            return question

        call, scope = here()
        step_id = call.cursor.new_id(scope, "sample")
        entry = await call.operations.ask(
            scope, step_id, "sample", question, admit, respond or self.respond
        )
        return entry.value


@EDGES
async def test_simultaneous_questions_are_admitted_before_the_first_answer(drive: Any) -> None:
    """Otherwise the second request would see a budget from which the first had already spent."""
    server = Server()

    async def body(_: Branch) -> Any:
        inner = gather([server.ask("c"), server.ask("d", passes=7)])
        return await gather([server.ask("a"), server.ask("b", passes=3), inner, ask("q")])

    assert await drive(body, world=World(BUDGET)) == ("A", "B", ("C", "D"), "Q")
    assert sorted(server.noted[:4]) == ["admit a", "admit b", "admit c", "admit d"]
    assert server.noted[4:] == ["answer a", "answer c", "answer b", "answer d"]


@EDGES
async def test_an_answer_waits_for_a_gather_whose_parts_have_ended(drive: Any) -> None:
    """The loop's pass in which the last part ends shows no runnable task yet."""
    server = Server()

    async def after(passes: int) -> Any:
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(passes)))
        return await server.ask("after")

    async def body(_: Branch) -> Any:
        return await gather([after(2), server.ask("at once")])

    assert await drive(body, world=World(BUDGET)) == ("AFTER", "AT ONCE")
    assert server.noted[:2] == ["admit at once", "admit after"]


@EDGES
async def test_without_a_budget_an_answer_does_not_wait(drive: Any) -> None:
    server = Server()

    async def body(_: Branch) -> Any:
        return await gather([server.ask("a"), server.ask("b", passes=9)])

    assert await drive(body, world=World()) == ("A", "B")
    assert server.noted == ["admit a", "answer a", "admit b", "answer b"]


@EDGES
async def test_a_running_step_delays_no_answer(drive: Any) -> None:
    server, answered = Server(), asyncio.Event()

    async def wait() -> None:
        await answered.wait()

    async def respond(question: str) -> Answer:
        answered.set()
        return loudly(question)

    async def body(_: Branch) -> Any:
        return await gather([step(wait), server.ask("a", respond)])

    assert await drive(body, world=World(BUDGET)) == (None, "A")


@EDGES
async def test_a_strand_that_never_waits_delays_answers_only_for_a_while(drive: Any) -> None:
    server, passes = Server(), 0

    async def body(_: Branch) -> Any:
        nonlocal passes
        answer = asyncio.create_task(server.ask("a"))
        while not answer.done():
            await asyncio.sleep(0)
            passes += 1
        return answer.result()

    assert await drive(body, world=World(BUDGET)) == "A"
    assert passes >= survey.PASSES


@EDGES
async def test_a_question_cancelled_before_the_answer_begins_is_not_answered(drive: Any) -> None:
    server = Server()

    async def body(_: Branch) -> Any:
        dropped = asyncio.create_task(server.ask("a"))
        other = asyncio.create_task(server.ask("b"))
        for _pass in range(5):
            await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.wait([dropped])
        return await other

    assert await drive(body, world=World(BUDGET)) == "B"
    assert server.noted == ["admit a", "admit b", "answer b"]
