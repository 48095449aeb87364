"""The endpoint of a server: address, worker processes, and limits of each process."""

from __future__ import annotations

import errno
import math
import os
import socket
import sys
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from anabranch._terminal import FailedError, UsageError
from anabranch.cli._options import TOKEN, AccessLog, LogForm, at_least, read_tokens

LEAST = 8
"""The minimum share of a caller: a client has a few requests in progress."""
SESSION_TTL = 1800.0
"""Seconds without a request after which a session ends."""
_WRONG_HOST = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def open_files() -> int:
    """Return the number of files, sockets included, that this process may have open."""
    if sys.platform == "win32":
        return 8192
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


CONCURRENCY: Final = 512
"""Maximum requests in progress at the same time, in one process."""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Endpoint:
    """The options for a server's address, its clients, and the limits of a process."""

    transport: Annotated[
        Literal["stdio", "http"], Parameter(help="Transport: stdin and stdout, or HTTP at /mcp.")
    ] = "stdio"
    host: Annotated[str, Parameter(help="Address to listen on over HTTP.")] = "127.0.0.1"
    port: Annotated[int, Parameter(help="Port to listen on over HTTP; 0 for any free port.")] = 8000
    allowed_host: Annotated[
        list[str] | None,
        Parameter(
            help="Host name under which clients or a proxy reach the server over HTTP; * for any. "
            "Repeatable. Required if --host is not the local machine.",
            negative=(),
        ),
    ] = None
    allowed_origin: Annotated[
        list[str] | None,
        Parameter(help="Origin of a web page that may send requests. Repeatable.", negative=()),
    ] = None
    token: Annotated[
        str | None,
        Parameter(
            env_var=TOKEN,
            help="Bearer token that requests need over HTTP, or several, separated by commas. The "
            "variable is safer: other users of the machine may see the command line.",
        ),
    ] = field(default=None, repr=False)
    stateless: Annotated[
        bool,
        Parameter(
            help="Offer no sessions over HTTP to clients of MCP up to 2025-11-25, so that any replica "
            "behind a balancer can serve them. Tools cannot ask these clients.",
            negative=(),
        ),
    ] = False
    workers: Annotated[
        int,
        Parameter(
            validator=at_least(1),
            help="Processes that share the port over HTTP. With more than one, clients of MCP up to "
            "2025-11-25 have no sessions, and tools cannot ask these clients.",
        ),
    ] = 1
    limit_concurrency: Annotated[
        int | None,
        Parameter(
            help="Maximum concurrent requests of one process over HTTP. Default: 512, or half of "
            "the process's limit of open files if that is less. The server refuses further requests."
        ),
    ] = None
    session_ttl: Annotated[
        float,
        Parameter(
            help="Seconds without a request after which the session of a client of MCP up to "
            "2025-11-25 ends, over HTTP."
        ),
    ] = SESSION_TTL
    access_log: AccessLog = False
    log_format: LogForm = "text"

    @property
    def concurrency(self) -> int:
        if self.limit_concurrency is None:
            return min(CONCURRENCY, open_files() // 2)
        return self.limit_concurrency

    @property
    def share(self) -> int:
        """Maximum requests of one caller in progress; an address may stand for many users."""
        return self.user_share if self.token else max(LEAST, self.concurrency // 2)

    @property
    def user_share(self) -> int:
        return max(LEAST, self.concurrency // 4)

    @property
    def lasting(self) -> float | None:
        """Seconds after which an idle session ends; ``None`` if the server offers no sessions."""
        return None if self.stateless else self.session_ttl

    def check(self) -> None:
        if self.transport == "stdio" and self.token != os.environ.get(TOKEN):
            raise UsageError(
                "Over stdio, no other process can call. Give --token with --transport http."
            )
        read_tokens(self.token)
        for name in self.allowed_host or ():
            if "/" in name or not name.strip():
                raise UsageError(
                    f"--allowed-host {name!r} is not the name of a host. Write the name alone,"
                    " without scheme and path, such as tools.example.org."
                )
        if not 0 <= self.port < 2**16:
            raise UsageError(f"There is no port {self.port}. Choose one from 0 to 65535.")
        if self.transport == "http" and not (is_loopback(self.host) or self.allowed_host):
            token = (
                ""
                if self.token
                else " Also give a --token: without a token, everyone who reaches the server may call"
                " the tools."
            )
            raise UsageError(
                f"Other machines can reach the server at {self.host}. Give the host name that"
                " clients use with --allowed-host NAME; the server refuses requests under any other"
                f" host name.{token}"
            )
        if self.workers > 1 and self.transport == "stdio":
            raise UsageError(
                "Over stdio there is one process. Give --workers with --transport http."
            )
        if not (self.stateless or 0 < self.session_ttl < math.inf):
            raise UsageError(
                f"A session cannot end after {self.session_ttl:g} s. Give --session-ttl more seconds."
            )
        if not 1 <= self.concurrency <= open_files():
            raise UsageError(
                f"A process cannot serve {self.concurrency} requests at the same time: it may have"
                f" {open_files()} files open. Choose fewer, or raise that limit (ulimit -n)."
            )

    def listen(self) -> socket.socket:
        """Return a listening socket; called before other parts start, an unusable address fails first."""
        try:
            return listen(self.host, self.port)
        except (socket.gaierror, ValueError) as error:  # ValueError: a name that cannot be encoded
            raise self._wrong_host(str(error.args[-1])) from error
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            if error.errno in _WRONG_HOST:
                raise self._wrong_host(reason) from error
            raise FailedError(
                f"Cannot listen on {self.host}:{self.port}: {reason}. Choose another --port."
            ) from error

    def address(self, listener: socket.socket) -> str:
        place = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{place}:{listener.getsockname()[1]}"

    def _wrong_host(self, reason: str) -> UsageError:
        return UsageError(
            f"Cannot listen on {self.host}:{self.port}: {reason}. Give --host an address of this"
            " machine."
        )


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.getaddrinfo(host, port, family)  # create_server would raise another error
    made = socket.create_server((host, port), family=family)
    # Connections inherit it. With Nagle's algorithm, each reply waits 40 ms for the previous one's ACK.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
