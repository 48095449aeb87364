"""Files of threads in each store."""

import hashlib
from collections.abc import Callable

import pytest

from anabranch.errors import StoreError
from anabranch.tree import Thread, TreeStore

DATA = bytes(range(256)) * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


async def test_a_file_belongs_to_its_thread_and_goes_with_it(
    open_any_trees: Callable[[], TreeStore],
) -> None:
    store = open_any_trees()
    try:
        for name in ("mine", "copy", "yours"):
            await store.create_thread(Thread(name, 0.0))
        for name in ("mine", "mine", "copy"):  # the second time changes nothing
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
