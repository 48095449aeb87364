"""The suites that every store and engine must pass: checks of each promise of a port, and plain models.

Write a store of your own, and hold it to them::

    @pytest.mark.parametrize("check", CALL_STORE_CHECKS, ids=lambda check: check.__name__)
    async def test_my_store_does_what_the_port_promises(check, tmp_path):
        await check(partial(MyStore, tmp_path / "calls.db"))

``CALL_STORE_CHECKS``, ``TREE_STORE_CHECKS``, ``BRANCH_STORE_CHECKS`` and the like need a function
that opens a new, empty store; the checks whose names begin with ``SHARED_`` one that opens the same
store every time and can be pickled, since they also start processes. ``CallModel`` and
``TreeModel`` are the ports as plain models in memory: :func:`run_clients` lets several clients work
on stores at the same time, and :func:`explains` searches for an order in which the model does what
they saw.
"""

from anabranch.testing.suites._branch_store_checks import (
    BRANCH_STORE_CHECKS,
    SHARED_BRANCH_STORE_CHECKS,
    BranchStoreCheck,
    OpenBranchStore,
)
from anabranch.testing.suites._call_model import CallModel
from anabranch.testing.suites._call_samples import CallStoreCheck, OpenCallStore
from anabranch.testing.suites._call_store_checks import CALL_STORE_CHECKS
from anabranch.testing.suites._engine_checks import ENGINE_CHECKS, EngineCheck
from anabranch.testing.suites._engine_samples import OpenEngine
from anabranch.testing.suites._linearizability import (
    Model,
    Operation,
    Seen,
    explains,
    run_clients,
)
from anabranch.testing.suites._memory_store_checks import (
    MEMORY_STORE_CHECKS,
    MemoryStoreCheck,
    OpenMemoryStore,
)
from anabranch.testing.suites._run_event_checks import OpenRunEvents, RunEventCheck
from anabranch.testing.suites._run_lease_checks import RUN_EVENT_CHECKS
from anabranch.testing.suites._shared_call_store_checks import SHARED_CALL_STORE_CHECKS
from anabranch.testing.suites._shared_run_event_checks import SHARED_RUN_EVENT_CHECKS
from anabranch.testing.suites._shared_tree_store_checks import SHARED_TREE_STORE_CHECKS
from anabranch.testing.suites._tree_model import TreeModel
from anabranch.testing.suites._tree_samples import OpenTreeStore, TreeStoreCheck
from anabranch.testing.suites._tree_store_checks import TREE_STORE_CHECKS

__all__ = [
    "BRANCH_STORE_CHECKS",
    "CALL_STORE_CHECKS",
    "ENGINE_CHECKS",
    "MEMORY_STORE_CHECKS",
    "RUN_EVENT_CHECKS",
    "SHARED_BRANCH_STORE_CHECKS",
    "SHARED_CALL_STORE_CHECKS",
    "SHARED_RUN_EVENT_CHECKS",
    "SHARED_TREE_STORE_CHECKS",
    "TREE_STORE_CHECKS",
    "BranchStoreCheck",
    "CallModel",
    "CallStoreCheck",
    "EngineCheck",
    "MemoryStoreCheck",
    "Model",
    "OpenBranchStore",
    "OpenCallStore",
    "OpenEngine",
    "OpenMemoryStore",
    "OpenRunEvents",
    "OpenTreeStore",
    "Operation",
    "RunEventCheck",
    "Seen",
    "TreeModel",
    "TreeStoreCheck",
    "explains",
    "run_clients",
]
