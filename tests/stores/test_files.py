"""Files of threads in each kind of store."""

import hashlib
from collections.abc import Callable

import pytest

from anabranch.errors import StoreError
from anabranch.messages import FileBlock, TextBlock
from anabranch.tree import Result, Thread, TreeStore
from tests.suites.expectations import opened
from tests.suites.tree_samples import OpenTreeStore, a_node, a_thread, calls_tool

DATA = bytes(range(256)) * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


async def test_a_file_is_deleted_with_its_thread(open_any_trees: Callable[[], TreeStore]) -> None:
    store = open_any_trees()
    try:
        for name in ("mine", "copy", "yours"):
            await store.create_thread(Thread(name, 0.0))
        for name in ("mine", "mine", "copy"):  # a second insertion has no effect
            await store.add_files(name, {DIGEST: DATA})
        other = "0" * 64
        assert await store.files("mine", [DIGEST, other]) == {DIGEST: DATA}
        assert await store.files("mine", []) == {}
        assert await store.files("yours", [DIGEST]) == {}
        assert await store.delete_thread("mine")
        assert await store.files("mine", [DIGEST]) == {}
        assert await store.files("copy", [DIGEST]) == {DIGEST: DATA}
        with pytest.raises(StoreError, match="no thread"):
            await store.add_files("mine", {DIGEST: DATA})
    finally:
        await store.close()


async def test_deleting_a_subtree_deletes_files_without_other_references(
    open_any_trees: OpenTreeStore,
) -> None:
    """This covers nodes, results and pending results. A text that contains a digest is no reference."""
    names = ("node", "result", "pending", "both", "kept", "unsent")
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}

    def file(name: str) -> tuple[FileBlock]:
        return (FileBlock(mime_type="image/png", digest=digests[name], size=1),)

    quoted = TextBlock(text=f'{{"digest":"{digests["node"]}"}}')
    result = Result("use", "u", file("result"), pending=file("pending"))
    async with opened(open_any_trees) as store:
        for thread_id in ("t", "other"):
            await store.create_thread(a_thread(thread_id))
            await store.add_files(thread_id, dict.fromkeys(digests.values(), DATA))
        nodes = [
            a_node("root", content=(quoted, *file("both"))),
            a_node("gone", "root", content=(*file("node"), *file("both"))),
            a_node("use", "gone", "assistant", calls_tool("u")),
            a_node("kept", "root", content=file("kept")),
        ]
        await store.append(nodes, results=[result])
        assert await store.delete_subtree("gone") == 2
        left = await store.files("t", digests.values())
        assert set(left) == {digests[name] for name in ("both", "kept", "unsent")}
        assert set(await store.files("other", digests.values())) == set(digests.values())
