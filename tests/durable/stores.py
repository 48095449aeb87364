"""Stores that fail on purpose, in front of a real one: a server dies, leaves, waits or is cut off."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from anabranch._durable import CallStore, Processes, UnknownProcesses
from anabranch.errors import StoreError
from tests.suites.call_model import CallModel

if TYPE_CHECKING:
    _Anything = Any
else:
    _Anything = object

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]


class Watched(_Anything):  # type: ignore[misc]  # mypy takes no base of any type
    """A store that records its operations, in order."""

    def __init__(self, store: CallStore) -> None:
        self.store = store
        self.asked: list[str] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
            method = getattr(self.store, name)

            async def passed(*arguments: object, **options: object) -> object:
                return await self._pass(name, lambda: method(*arguments, **options))

            return passed

    @property
    def processes(self) -> Processes:
        return self.store.processes

    async def _pass(self, name: str, work: Work[T]) -> T:
        self.asked.append(name)
        return await work()

    async def good(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Perform an operation as this class does, without the change of a subclass."""
        return await self._pass(name, lambda: getattr(self.store, name)(*arguments, **options))


class Cut(Watched):
    """A store that is out of reach from operation number ``at`` on, as for a process that died.

    With ``after``, the store still performs that operation, but its result is lost. Leases are
    released all the same, which stands for the time after which they run out.
    """

    def __init__(self, store: CallStore, at: int | None, *, after: bool = False) -> None:
        super().__init__(store)
        self.at = at
        self.after = after
        self.is_cut = False
        self.cut_off: str | None = None

    async def _pass(self, name: str, work: Work[T]) -> T:
        if self.is_cut:
            if name == "release":
                await work()
            raise StoreError("out of reach")
        self.asked.append(name)
        if len(self.asked) - 1 != self.at:
            return await work()
        self.is_cut, self.cut_off = True, name
        if name == "release" or self.after:
            await work()
        raise StoreError("out of reach")


class CutAt(Cut):
    """A store that is out of reach from the first operation of a given name on."""

    def __init__(self, store: CallStore, name: str) -> None:
        super().__init__(store, None)
        self.name = name

    async def _pass(self, name: str, work: Work[T]) -> T:
        if name == self.name and not self.is_cut:
            self.at = len(self.asked)
        return await super()._pass(name, work)


class Interrupting(Watched):
    """A store that cancels the request at operation number ``at``, as if the client had left."""

    def __init__(self, store: CallStore, at: int | None) -> None:
        super().__init__(store)
        self.at = at
        self.request: asyncio.Task[object] | None = None

    async def _pass(self, name: str, work: Work[T]) -> T:
        self.asked.append(name)
        if len(self.asked) - 1 == self.at and self.request is not None:
            self.request.cancel()
        return await work()


class Observed(Watched):
    """A store that puts the name of each finished operation into ``done``."""

    def __init__(self, store: CallStore) -> None:
        super().__init__(store)
        self.done: asyncio.Queue[str] = asyncio.Queue()

    async def _pass(self, name: str, work: Work[T]) -> T:
        result = await work()
        self.done.put_nowait(name)
        return result

    async def until(self, name: str) -> None:
        """Return when an operation of that name has finished since the last call of this method."""
        while await self.done.get() != name:
            pass


class Gate(Watched):
    """A store whose operations named ``name`` wait at a gate.

    Attributes:
        arrived: set when the first such operation has arrived.
        opened: set this to let all operations pass.
    """

    def __init__(self, store: CallStore, name: str, *, after: int = 0) -> None:
        super().__init__(store)
        self.name = name
        self.after = after
        self.arrived = asyncio.Event()
        self.opened = asyncio.Event()

    async def _pass(self, name: str, work: Work[T]) -> T:
        self.asked.append(name)
        if name == self.name and self.asked.count(name) > self.after:
            self.arrived.set()
            await self.opened.wait()
        return await work()


class Suspended(Watched):
    """The store of a process that is suspended when it reaches an operation ``name``.

    The process has performed ``after`` such operations before. Other operations that it reaches
    meanwhile, such as the renewal of a lease, come first when the process resumes.

    Attributes:
        arrived: set when the process is suspended.
        woken: set this to resume the process.
    """

    def __init__(self, store: CallStore, name: str, *, after: int = 0) -> None:
        super().__init__(store)
        self.name = name
        self.after = after
        self.arrived = asyncio.Event()
        self.woken = asyncio.Event()
        self._others = 0
        self._others_are_done = asyncio.Event()
        self._others_are_done.set()

    async def _pass(self, name: str, work: Work[T]) -> T:
        if not self.arrived.is_set():
            if name == self.name and self.asked.count(name) == self.after:
                self.arrived.set()
                await self.woken.wait()
                await self._others_are_done.wait()
            return await super()._pass(name, work)
        self._others += 1
        self._others_are_done.clear()
        await self.woken.wait()
        try:
            return await super()._pass(name, work)
        finally:
            self._others -= 1
            if not self._others:
                self._others_are_done.set()


class Switch(Watched):
    """A store that a test can put out of reach and back."""

    def __init__(self, store: CallStore, *, only: str | None = None) -> None:
        super().__init__(store)
        self.only = only
        self.is_off = False

    async def _pass(self, name: str, work: Work[T]) -> T:
        if self.is_off and self.only in (None, name):
            raise StoreError("out of reach")
        return await super()._pass(name, work)


class Modelled(Watched):
    """The model of a store (``store_model.py``) as a store: fast, and without any persistence."""

    def __init__(self) -> None:
        self._processes = UnknownProcesses()
        self.model = CallModel(self._processes.name)
        super().__init__(cast("CallStore", self.model))  # the model lacks only coroutines

    @property
    def processes(self) -> Processes:
        return self._processes

    async def _pass(self, name: str, work: Work[T]) -> T:
        await asyncio.sleep(0)
        return cast("T", work())
