"""``anabranch memory``: the operator's commands, over the memories of all callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from anabranch._terminal import FailedError, UsageError
from anabranch.cli._answering import open_sampler
from anabranch.cli._commands import command_group, example
from anabranch.cli._options import Limit, Model, Store
from anabranch.cli._output import print_either, print_json
from anabranch.cli._stores import with_store
from anabranch.memory import Distiller, Filter, Memory, MemoryStore, ReasoningBank, shown, words_of
from anabranch.stores import open_memory_store

_ALL = 1_000_000_000

memory_app: App = command_group("memory", "anabranch memory list --limit 5")

Id = Annotated[str, Parameter(help="Id of the note.")]


@memory_app.command(name="list", help_epilogue=example("anabranch memory list --limit 5"))
def list_command(*, limit: Limit = 50, store: Store = None) -> None:
    """List the latest notes, the newest first."""
    _print_all(
        with_store(open_memory_store, store, lambda memories: memories.newest(Filter(limit=limit)))
    )


@memory_app.command(
    name="search", help_epilogue=example("anabranch memory search 'payment retries'")
)
def search_command(
    text: Annotated[str, Parameter(help="Subject of the notes.")],
    /,
    *,
    limit: Limit = 10,
    store: Store = None,
) -> None:
    """Search notes by words, the most relevant first."""
    which = Filter(limit=limit)
    words = words_of(text)
    _print_all(with_store(open_memory_store, store, lambda memories: memories.search(words, which)))


@memory_app.command(name="show", help_epilogue=example("anabranch memory show mem_1a2b"))
def show_command(memory_id: Id, /, *, store: Store = None) -> None:
    """Show one note with all its fields, as JSON."""
    found = with_store(open_memory_store, store, lambda memories: memories.find(memory_id))
    if found is None:
        raise FailedError(_unknown(memory_id))
    print_json(_whole(found))


@memory_app.command(name="forget", help_epilogue=example("anabranch memory forget mem_1a2b"))
def forget_command(memory_id: Id, /, *, store: Store = None) -> None:
    """Delete a note permanently."""
    if not with_store(open_memory_store, store, lambda memories: memories.forget(memory_id)):
        raise FailedError(_unknown(memory_id))
    print_json({"forgotten": memory_id})


@memory_app.command(
    name="distill",
    help_epilogue=example("anabranch memory distill --model anthropic:claude-sonnet-5-5"),
)
def distill_command(*, model: Model = None, store: Store = None) -> None:
    """Distill notes from all finished branches in the queue.

    The model judges how each branch ended, and writes notes on the lessons. If the model fails, the
    branch stays in the queue for a later attempt.
    """
    sampler = open_sampler(model)
    if sampler is None:
        raise UsageError("distill needs a model: give --model NAME, or set ANABRANCH_MODEL.")

    async def work(memories: MemoryStore) -> dict[str, int]:
        done = await Distiller(ReasoningBank(memories), sampler).learn_all()
        return {"branches": done, "waiting": await memories.waiting()}

    print_json(with_store(open_memory_store, store, work))


@memory_app.command(name="export", help_epilogue=example("anabranch memory export"))
def export_command(*, store: Store = None) -> None:
    """Print all notes with all their fields, as a JSON list, the oldest first."""
    every = with_store(
        open_memory_store, store, lambda memories: memories.newest(Filter(limit=_ALL))
    )
    print_json([_whole(memory) for memory in reversed(every)])


def _unknown(memory_id: str) -> str:
    return f"The store has no memory {memory_id!r}; anabranch memory list has the ids."


def _whole(memory: Memory) -> dict[str, object]:
    return {**memory.model_dump(), "confidence": memory.confidence}


def _print_all(memories: Sequence[Memory]) -> None:
    lines = [
        f"{each.id}  {each.confidence:.2f}  {each.scope.level:7}  {each.title}\n    {each.description}"
        for each in memories
    ]
    print_either([shown(each).model_dump() for each in memories], lines or ["No memories."])
