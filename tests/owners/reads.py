"""Records which parts of a request an application's routes read: query, headers, fields of the body.

Starlette's route table lists only the parameters of a path. This module records the other
parameters as the routes read them.
"""

import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.requests import HTTPConnection, Request

PROTOCOL = {"accept", "accept-encoding", "content-type", "if-none-match"}
"""Headers that control the form of an answer, and name no data."""


class _Noted(Mapping[str, str]):
    """A mapping that records the names that are looked up in it."""

    def __init__(self, given: Any, names: set[str]) -> None:
        self._given = given
        self._names = names

    def __getitem__(self, name: str) -> str:
        self._names.add(name)
        return str(self._given[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)


class Reads:
    """Records the parameters that each endpoint has read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.query: dict[Any, set[str]] = defaultdict(set)
        self.headers: dict[Any, set[str]] = defaultdict(set)
        self.models: dict[Any, set[type[BaseModel]]] = defaultdict(set)
        self.bodies: set[Any] = set()
        for name, notes in (("query_params", self.query), ("headers", self.headers)):
            self._note_names(patch, name, notes)
        self._note_bodies(patch)

    def _note_names(
        self, patch: pytest.MonkeyPatch, name: str, notes: Mapping[Any, set[str]]
    ) -> None:
        given: Any = vars(HTTPConnection)[name]

        def noted(request: HTTPConnection) -> Any:
            value = given.fget(request)
            route = request.scope.get("endpoint")  # ``None`` if a middleware reads
            return value if route is None else _Noted(value, notes[route])

        patch.setattr(HTTPConnection, name, property(noted))

    def _note_bodies(self, patch: pytest.MonkeyPatch) -> None:
        ours = [each for name, each in sys.modules.items() if name.startswith("anabranch.")]
        readers = [each for each in ours if hasattr(each, "read_body")]
        read, stream = readers[0].read_body, Request.stream

        async def noted(request: Request, model: type[Any]) -> Any:
            self.models[request.scope["endpoint"]].add(model)
            return await read(request, model)

        async def streamed(request: Request) -> AsyncGenerator[bytes]:
            self.bodies.add(request.scope.get("endpoint"))
            async for chunk in stream(request):
                yield chunk

        for module in readers:
            patch.setattr(module, "read_body", noted)
        patch.setattr(Request, "stream", streamed)

    def of(self, endpoint: Any) -> Iterator[tuple[str, str]]:
        """Yield the parameters that an endpoint is known to read, without those of its path."""
        yield from (("query", name) for name in sorted(self.query[endpoint]))
        named = self.headers[endpoint]
        yield from (("headers", name) for name in sorted(named) if name.lower() not in PROTOCOL)
        for model in self.models[endpoint]:
            for name, about in model.model_json_schema()["properties"].items():
                kinds = [about, *about.get("anyOf", ())]
                if any(each.get("type") == "string" for each in kinds):
                    yield "body", name
