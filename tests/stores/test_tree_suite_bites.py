"""The suite for stores of conversations finds broken promises: each saboteur breaks one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch.stores import open_tree_store
from anabranch.tree import Node, Path, Ref, Result, Surroundings, Thread, Tree, TreeStore, TurnEnd
from tests.stores.sabotage import Forwarding, assert_found
from tests.suites import tree_store_checks as suite
from tests.suites.tree_programs import TREE_PROGRAM_CHECKS as PROGRAM
from tests.suites.tree_samples import TreeStoreCheck
from tests.suites.tree_store_checks import TREE_STORE_CHECKS


class Saboteur(Forwarding):
    def __init__(self) -> None:
        self.good: TreeStore = open_tree_store("memory:")


class CreatesAgain(Saboteur):
    async def create_thread(self, thread: Thread) -> None:
        await self.good.delete_thread(thread.id)
        await self.good.create_thread(thread)


class FindsPathsOfUnknownNodes(Saboteur):
    async def path(self, node_id: str) -> Path:
        return await self.good.path(node_id) if await self.good.node(node_id) else Path((), {})


class ListsTheOldestFirst(Saboteur):
    async def threads(self, limit: int) -> list[Thread]:
        return (await self.good.threads(100))[::-1][:limit]


class ListsThreadsOfAnyOwner(Saboteur):
    async def threads_of(self, owner: str | None, limit: int) -> list[Thread]:
        del owner
        return await self.good.threads(limit)


class ForgetsUsage(Saboteur):
    async def node(self, node_id: str) -> Node | None:
        found = await self.good.node(node_id)
        return found and replace(found, usage=None)


class AppendsOneByOne(Saboteur):
    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        for node in nodes:
            await self.good.append([node])
        await self.good.append([], results=results, refs=refs)


class LosesResultsOfThePath(Saboteur):
    async def path(self, node_id: str) -> Path:
        return Path((await self.good.path(node_id)).nodes, {})


class StopsAfterAThousand(Saboteur):
    async def path(self, node_id: str) -> Path:
        found = await self.good.path(node_id)
        return Path(found.nodes[-1000:], found.results)


class LooksBelowTheLastAlone(Saboteur):
    async def around(self, thread_id: str, node_id: str | None = None) -> Surroundings | None:
        found = await self.good.around(thread_id, node_id)
        return found and replace(found, below={found.last.id: found.below[found.last.id]})


class SortsChildren(Saboteur):
    async def children(self, node_id: str) -> list[Node]:
        return sorted(await self.good.children(node_id), key=lambda node: node.id)


class ShowsChildrenFirst(Saboteur):
    async def tree(self, thread_id: str) -> Tree:
        found = await self.good.tree(thread_id)
        return replace(found, nodes=found.nodes[::-1])


class ReadsOnPastWhatIsGone(Saboteur):
    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        all_nodes = await self.good.nodes_after(thread_id, []) or []
        return all_nodes[len(known) :]


class NeverReplacesAResult(Saboteur):
    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        await self.good.append(nodes, refs=refs)
        for result in results:
            if (result.node_id, result.tool_use_id) not in (
                await self.good.path(result.node_id)
            ).results:
                await self.good.append([], results=[result])


class NeverRemovesTheEndOfATurn(Saboteur):
    async def end_turn(self, node_id: str, end: TurnEnd | None) -> None:
        await self.good.end_turn(node_id, end or TurnEnd())


class NeverSettles(Saboteur):
    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        before: list[Result] = []
        for node in nodes:
            if node.parent_id is not None and await self.good.node(node.parent_id) is not None:
                before += (await self.good.path(node.parent_id)).results.values()
        await self.good.append(nodes, refs=refs)
        await self.good.append([], results=[*before, *results])


class SettlesWhatCameAlong(Saboteur):
    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        await self.good.append([], results=results)
        await self.good.append(nodes, refs=refs)


class LeavesRefsBehind(Saboteur):
    before: dict[str, str]

    async def delete_subtree(self, node_id: str) -> int:
        self.before = await self.good.refs("t")
        return await self.good.delete_subtree(node_id)

    async def tree(self, thread_id: str) -> Tree:
        return replace(await self.good.tree(thread_id), refs=self.before)


class DeletesTheNodeAlone(Saboteur):
    async def delete_subtree(self, node_id: str) -> int:
        return min(1, await self.good.delete_subtree(node_id))


class WorksWhenClosed(Saboteur):
    async def close(self) -> None:
        pass


SABOTEURS: list[tuple[type[Saboteur], TreeStoreCheck]] = [
    (CreatesAgain, PROGRAM["a thread is found as it was created"]),
    (FindsPathsOfUnknownNodes, PROGRAM["what is unknown has nothing"]),
    (ListsTheOldestFirst, PROGRAM["the newest thread comes first"]),
    (ListsThreadsOfAnyOwner, PROGRAM["only the threads of an owner are listed as theirs"]),
    (ForgetsUsage, PROGRAM["a node is found as it was appended"]),
    (AppendsOneByOne, PROGRAM["an append is all or nothing"]),
    (
        LosesResultsOfThePath,
        PROGRAM["a path leads from the beginning, with the results on the way"],
    ),
    (StopsAfterAThousand, suite.a_path_may_be_long),
    (LooksBelowTheLastAlone, PROGRAM["surroundings are the path and the children of the open end"]),
    (SortsChildren, PROGRAM["children come in the order of appending"]),
    (ShowsChildrenFirst, PROGRAM["a tree is all of a thread"]),
    (ReadsOnPastWhatIsGone, PROGRAM["a thread is read on from what is known"]),
    (NeverReplacesAResult, PROGRAM["a result is replaced for all"]),
    (NeverRemovesTheEndOfATurn, PROGRAM["the end of a turn is set, replaced and removed"]),
    (NeverSettles, PROGRAM["what is pending waits for the next message"]),
    (NeverSettles, PROGRAM["what is pending waits beyond questions"]),
    (SettlesWhatCameAlong, PROGRAM["what is pending is only settled later"]),
    (LeavesRefsBehind, PROGRAM["a deleted subtree is gone"]),
    (DeletesTheNodeAlone, PROGRAM["a deleted subtree is gone"]),
    (WorksWhenClosed, suite.a_closed_tree_store_refuses_operations),
]


@pytest.mark.parametrize(("saboteur", "check"), SABOTEURS)
async def test_the_suite_finds_a_broken_promise(
    saboteur: type[Saboteur], check: TreeStoreCheck
) -> None:
    await assert_found(saboteur, check)

    assert check in TREE_STORE_CHECKS
