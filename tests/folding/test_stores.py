"""Every kind of store of branches passes the published suite."""

from functools import partial
from pathlib import Path

import pytest

from anabranch.stores import open_branch_store
from tests.postgres import Server
from tests.suites.branch_store_checks import (
    BRANCH_STORE_CHECKS,
    SHARED_BRANCH_STORE_CHECKS,
    BranchStoreCheck,
    OpenBranchStore,
)


def name_of(check: BranchStoreCheck) -> str:
    return getattr(check, "__name__", repr(check))


def opening(kind: str, request: pytest.FixtureRequest, folder: Path) -> OpenBranchStore:
    if kind == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return partial(open_branch_store, server.new_url())
    return partial(
        open_branch_store, "memory:" if kind == "memory" else f"sqlite:///{folder}/branches.db"
    )


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
@pytest.mark.parametrize("check", BRANCH_STORE_CHECKS, ids=name_of)
async def test_a_store_of_branches_keeps_the_promises_of_the_port(
    check: BranchStoreCheck, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await check(opening(kind, request, tmp_path))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("check", SHARED_BRANCH_STORE_CHECKS, ids=name_of)
async def test_a_shared_store_of_branches_keeps_the_promises_of_the_port(
    check: BranchStoreCheck, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    await check(opening(kind, request, tmp_path))
