"""A process that opens branches in a store without end, until it is killed."""

import asyncio
import sys

from anabranch.folding import ROOT, BranchService, FoldingError, FoldingSettings
from anabranch.stores import open_branch_store

SETTINGS = FoldingSettings(
    max_concurrent_per_session=1_000, max_concurrent_per_instance=1_000, session_budget=None
)


async def main(url: str) -> None:
    service = BranchService(open_branch_store(url), SETTINGS)
    for _ in range(100):
        await service.create("d", "p", session_id="s", parent_branch_id=ROOT, budget=1_000)

    async def work(branch_id: str) -> None:
        while True:
            sys.stdout.write("one more\n")
            sys.stdout.flush()
            try:
                await service.charge(7, branch_id=branch_id)
                inner = await service.create("d", "p", parent_branch_id=branch_id, budget=50)
                await service.complete("m", branch_id=inner.branch.id)
            except FoldingError:
                return

    await asyncio.gather(*(work(each.id) for each in await service.branches("s")))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
