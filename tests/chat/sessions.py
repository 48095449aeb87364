"""Sessions for tests: a tree in memory, and a model whose replies depend on the message."""

import itertools
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel

from anabranch import BranchContext, Capabilities, Elicitation, tool
from anabranch._asking import Absent
from anabranch.agents import Agent, BranchSelf, Question
from anabranch.chat import Output, Session, enter
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.testing import MockModel, calls
from anabranch.tree import Tree, TreeStore
from tests.agents.memory import MemoryTrees


class Confirm(BaseModel):
    ok: bool
    note: str = ""


CONFIRM = Elicitation("confirm", Confirm)


@tool
async def add(ctx: BranchContext, a: int, b: int = 1) -> int:
    return a + b


@tool(elicits=[CONFIRM])
async def book(ctx: BranchContext, place: str) -> str:
    answer = await ctx.elicit(CONFIRM, f"Book {place}?")
    return f"{place}: {answer.action}"


@tool
async def fail(ctx: BranchContext) -> str:
    raise RuntimeError("secret")


class User(Absent):
    capabilities = Capabilities()

    def __init__(self, *replies: ElicitReply) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []

    async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
        self.asked.append(question.message)
        return self.replies.pop(0) if self.replies else ElicitReply(action="decline")


def heard(request: SampleRequest) -> str:
    """Return the text of the last message, without tool results."""
    return request.messages[-1].text


def echo(request: SampleRequest) -> str | SampleReply | Exception:
    """Repeat the message; `fork A B` branches, `use TOOL …` calls a tool, `break` fails."""
    said = heard(request)
    words = said.split()
    match words[:1]:
        case ["fork"]:
            return calls((_id(request), "branch_self", {"prompts": words[1:]}), text="Forking.")
        case ["book"]:
            return calls((_id(request), "book", {"place": words[1]}))
        case ["break"]:
            return RuntimeError("the line is dead")
        case []:
            return "Done."
        case _:
            return f"You said: {said}"


def _id(request: SampleRequest) -> str:
    return f"use_{len(request.messages)}_{abs(hash(heard(request))) % 1000}"


def numbered() -> Callable[[Literal["thread", "node"]], str]:
    counts = {"thread": itertools.count(1), "node": itertools.count(1)}
    return lambda kind: f"{kind[0]}{next(counts[kind])}"


OF_SESSION = {"models", "columns", "system_prompt"}


def session(
    decide: Callable[[SampleRequest], Any] = echo,
    *,
    store: TreeStore | None = None,
    thread_id: str | None = None,
    naming: Callable[[Literal["thread", "node"]], str] | None = None,
    **more: Any,
) -> Session:
    own = {name: more.pop(name) for name in OF_SESSION & more.keys()}
    agent = Agent(
        store or MemoryTrees(),
        MockModel(decide),
        tools=[BranchSelf(), add, book, fail],
        naming=naming or numbered(),
        **{"user": Absent(), **more},
    )
    return Session(agent, thread_id=thread_id, model_name="mock", **own)


def beside(chat: Session) -> Session:
    naming = chat.agent.dependencies.naming
    return session(store=chat.store, thread_id=chat.cursor.thread_id, naming=naming)


async def feed(chat: Session, *lines: str) -> list[Output]:
    """Enter lines; return the result of the last one."""
    outputs: list[Output] = []
    for line in lines:
        outputs = await enter(chat, line)
    return outputs


async def shown(chat: Session, *lines: str) -> str:
    """Enter lines; return the text of the last result, with errors marked."""
    return "\n".join(
        f"error: {output.content}" if output.type == "error" else output.content
        for output in await feed(chat, *lines)
    )


async def text_here(chat: Session) -> str:
    node = await chat.cursor.node()
    return "" if node is None else node.text


async def tree_of(chat: Session) -> Tree:
    return await chat.store.tree(chat.cursor.thread_id)
