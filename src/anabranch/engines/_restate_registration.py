"""A worker's registration at Restate: without it, Restate does not call the worker."""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from anabranch._aio import Clock, pause
from anabranch.engines._advances import run_job
from anabranch.engines._restate_api import RestateApi
from anabranch.engines._restate_names import listed
from anabranch.engines._restate_worker import RestateWorker

LOOK_EVERY = 5.0
"""Seconds from one look at what is registered to the next."""

LOOKS, BETWEEN_LOOKS = 40, 0.05
"""How often a worker looks whether all that waited for one has arrived, and seconds between."""

DUE = "('ready', 'running', 'backing-off')"
"""Restate's states of a wake whose time has come, and which waits for no other of its call."""


class Registration:
    """Has Restate call a worker.

    Args:
        api: of Restate.
        address: the worker's, as Restate reaches it.
        services: what the worker serves.
        clock: the time.
    """

    def __init__(
        self, api: RestateApi, address: str, services: Collection[str], clock: Clock
    ) -> None:
        self._api = api
        self._address = address
        self._services = services
        self._clock = clock
        self._id = ""

    async def begin(self) -> None:
        """Register the worker: from now on, Restate calls no other address for its services."""
        self._id = await self._api.register(self._address)

    async def wait_for_arrivals(self, worker: RestateWorker) -> None:
        """Wait until what waited for a worker is there: then it can choose what comes first.

        It does not wait for long: another worker at the same address may have got it.
        """
        waiting = await self._due()
        for _ in range(LOOKS):
            waiting &= await self._due()
            if waiting <= worker.keys:
                return
            await pause(self._clock, BETWEEN_LOOKS)

    async def stay(self) -> NoReturn:
        """Register again when Restate has lost the worker, or calls another that does not answer."""
        while True:
            await pause(self._clock, LOOK_EVERY)
            await run_job("registration", self._look)

    async def _look(self) -> None:
        known = await self._api.select("name", "sys_service", f"name IN {listed(self._services)}")
        in_vain = await self._api.select(
            "id",
            "sys_invocation",
            f"target_service_name IN {listed(self._services)} AND status = 'backing-off'"
            f" AND pinned_deployment_id IS NULL AND last_attempt_deployment_id <> '{self._id}'"
            " LIMIT 1",
        )
        if in_vain or len(known) < len(self._services):
            await self.begin()

    async def _due(self) -> set[str]:
        """Return the objects for which a worker is called, or is about to be."""
        found = await self._api.select(
            "target_service_key AS key",
            "sys_invocation",
            f"target_service_name IN {listed(self._services)} AND status IN {DUE}",
        )
        return {each["key"] for each in found}
