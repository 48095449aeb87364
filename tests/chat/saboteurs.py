"""An application without one of its checks."""

import pytest

from anabranch.chat._web.conversations import Conversations


def forget_the_owner(patch: pytest.MonkeyPatch) -> None:
    """Let every user find every conversation."""

    async def find(self: Conversations, thread_id: str, principal: str | None) -> object:
        thread = await self.agent.store.thread(thread_id)
        return None if thread is None else self._in(thread)

    patch.setattr(Conversations, "find", find)
