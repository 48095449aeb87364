"""The HTTP interfaces of a Restate cluster: its ingress, which takes wakes, and its admin API.

Whatever goes wrong is a ``StoreError`` of one sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import httpx2

from anabranch._text import read_json
from anabranch.engines._restate_names import ADVANCE
from anabranch.errors import StoreError

TIMEOUT = 30.0
"""Seconds for an answer. Before Restate answers a registration, it asks the worker what it has."""

NOT_FOUND = 404

Sent: TypeAlias = Literal["accepted", "repeated", "unserved"]
"""Whether Restate took what was sent, had it already, or knows no worker for it."""


class RestateApi:
    """Sends to a cluster, and asks it.

    Args:
        ingress: the URL of its ingress.
        admin: the URL of its admin API; by default, port 9070 of the same host.

    Raises:
        StoreError: one of them is no HTTP URL.
    """

    def __init__(self, ingress: str, admin: str | None) -> None:
        self._ingress = checked_url(ingress)
        if admin is None:
            parts = urlsplit(self._ingress)
            admin = parts._replace(netloc=f"{_host(parts.hostname or '')}:9070").geturl()
        self._admin = checked_url(admin)
        self._served: set[str] = set()
        self._http = httpx2.AsyncClient(timeout=TIMEOUT)

    async def send(
        self, service: str, key: str, name: str, body: Mapping[str, Any], delay: float = 0.0
    ) -> Sent:
        """Have the handler of an object called once, in ``delay`` seconds.

        Args:
            service: of which kind the object is.
            key: the object.
            name: the name of the request: the same one again is the same request.
            body: what the handler receives.
            delay: seconds from now.
        """
        if not await self._is_served(service):
            return "unserved"
        try:
            answer = await self._ask(
                "POST",
                f"{self._ingress}/{service}/{key}/{ADVANCE}/send",
                json=dict(body),
                params={"delay": f"{round(delay * 1000)}ms"} if delay > 0 else {},
                headers={"idempotency-key": name},
                allowed={NOT_FOUND},
            )
        except StoreError:
            self._served.discard(service)  # Restate may have lost it: the next request looks
            raise
        if answer.status_code == NOT_FOUND:
            self._served.discard(service)
            return "unserved"
        return "accepted" if self._read(answer).get("status") == "Accepted" else "repeated"

    async def _is_served(self, service: str) -> bool:
        """Whether a worker has registered a service.

        The ingress would say so, too; but it closes the connection on what it was sent for nothing,
        and its answer may be lost with it.
        """
        if service not in self._served:
            url = f"{self._admin}/services/{service}"
            answer = await self._ask("GET", url, allowed={NOT_FOUND})
            if answer.status_code == NOT_FOUND:
                return False
            self._served.add(service)
        return True

    async def register(self, address: str) -> str:
        """Have Restate call the worker at ``address`` from now on; return its name for that."""
        answer = await self._ask(
            "POST",
            f"{self._admin}/deployments",
            json={"uri": address, "force": True, "use_http_11": True},
            refusal=f"Restate cannot reach a worker at {address}: give an address at which it can.",
        )
        return str(self._read(answer).get("id", ""))

    async def select(self, columns: str, table: str, condition: str) -> list[dict[str, Any]]:
        """Return the rows of a table for which a condition holds; values in it are ``encoded``."""
        answer = await self._ask(
            "POST",
            f"{self._admin}/query",
            json={"query": f"SELECT {columns} FROM {table} WHERE {condition}"},  # noqa: S608 - encoded
            headers={"accept": "application/json"},
        )
        rows: object = self._read(answer).get("rows")
        return cast("list[dict[str, Any]]", rows) if isinstance(rows, list) else []

    def check_open(self) -> None:
        """Raise a ``StoreError`` after :meth:`close`."""
        if self._http.is_closed:
            raise StoreError("The engine is closed.")

    async def close(self) -> None:
        """Close the connections; closing again does nothing."""
        await self._http.aclose()

    async def _ask(
        self,
        method: str,
        url: str,
        *,
        allowed: Collection[int] = (),
        json: object = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        refusal: str = "",
    ) -> httpx2.Response:
        self.check_open()
        where = f"Restate at {urlsplit(url).netloc}"
        try:
            answer = await self._http.request(
                method, url, json=json, params=params, headers=headers
            )
        except httpx2.HTTPError as error:
            raise StoreError(f"{where} cannot be reached.") from error
        if answer.is_success or answer.status_code in allowed:
            return answer
        raise StoreError(
            refusal or f"{where} has refused a request, with status {answer.status_code}."
        )

    def _read(self, answer: httpx2.Response) -> dict[str, Any]:
        try:
            found: object = read_json(answer.text)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
        where = f"Restate at {answer.request.url.netloc.decode()}"
        raise StoreError(f"{where} has answered with something else than a JSON object.")


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def checked_url(url: str) -> str:
    """Return the HTTP URL of a server without the slash at its end.

    Raises:
        StoreError: it is none.
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise StoreError(
            f"Restate and its workers are reached under a URL like http://host:8080, not {url!r}."
        )
    return url.rstrip("/")
