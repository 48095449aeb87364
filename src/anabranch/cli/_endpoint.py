"""The endpoint of a server: address, worker processes, and limits of each process."""

from __future__ import annotations

import errno
import math
import os
import socket
import sys
from dataclasses import dataclass
from typing import Literal

from anabranch._terminal import FailedError, UsageError
from anabranch._text import LogFormat
from anabranch.cli._http_access import CONCURRENCY, LOCAL, Access, is_loopback
from anabranch.cli._http_server import listen
from anabranch.cli._options import SESSION_TTL

LEAST = 8
"""The least share of a caller: a client has a few requests in progress."""
PORTS = range(2**16)
_WRONG_HOST = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def open_files() -> int:
    """Return how many files, sockets included, this process may have open."""
    if sys.platform == "win32":
        return 8192
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address, processes and limits of a server.

    Attributes:
        transport: by which transport; the other attributes are of HTTP.
        host, port: the address to listen on.
        workers: processes that share it.
        access: the rules of access.
        session_ttl: seconds after which an idle session ends; ``None``: sessions are not offered.
        limit_concurrency: requests that one process has in progress at the same time; ``None`` for the
            default.
        access_log: whether each request is logged.
        log_format: the format of log records.
    """

    transport: Literal["stdio", "http"] = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    access: Access = LOCAL
    session_ttl: float | None = SESSION_TTL
    limit_concurrency: int | None = None
    access_log: bool = False
    log_format: LogFormat = "text"

    @property
    def concurrency(self) -> int:
        """The number of requests that a process has in progress at the same time."""
        if self.limit_concurrency is None:
            return min(CONCURRENCY, open_files() // 2)
        return self.limit_concurrency

    @property
    def share(self) -> int:
        """The number of requests that one caller may have in progress; an address may have many users."""
        return self.person_share if self.access.tokens else max(LEAST, self.concurrency // 2)

    @property
    def person_share(self) -> int:
        """The number of requests that one user may have in progress."""
        return max(LEAST, self.concurrency // 4)

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: if an option is wrong; the message names the option.
        """
        if self.port not in PORTS:
            raise UsageError(f"There is no port {self.port}. Choose one from 0 to 65535.")
        if self.transport == "http" and not (is_loopback(self.host) or self.access.hosts):
            raise UsageError(
                f"Other machines reach {self.host}. Give the server's host name with --allowed-host"
                " NAME; the server refuses requests under other names. A --token is advisable:"
                " without one, everyone who reaches the server may call the tools."
            )
        if self.workers < 1:
            raise UsageError(f"There cannot be {self.workers} workers. Choose 1 or more.")
        if self.workers > 1 and self.transport == "stdio":
            raise UsageError(
                "Over stdio there is one process. Give --workers with --transport http."
            )
        if self.session_ttl is not None and not 0 < self.session_ttl < math.inf:
            raise UsageError(
                f"A session cannot end after {self.session_ttl:g} s. Give --session-ttl more seconds."
            )
        if not 1 <= self.concurrency <= open_files():
            raise UsageError(
                f"A process cannot serve {self.concurrency} requests at the same time: it may have"
                f" {open_files()} files open. Choose fewer, or raise that limit (ulimit -n)."
            )

    def listen(self) -> socket.socket:
        """Return a socket that listens, so that nothing else is started where that fails.

        Raises:
            CommandError: there is no such host here, or its port cannot be used.
        """
        try:
            return listen(self.host, self.port)
        except (socket.gaierror, ValueError) as error:  # a name that cannot be encoded: the latter
            raise self._wrong_host(str(error.args[-1])) from error
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            if error.errno in _WRONG_HOST:
                raise self._wrong_host(reason) from error
            raise FailedError(
                f"Cannot listen on {self.host}:{self.port}: {reason}. Choose another --port."
            ) from error

    def _wrong_host(self, reason: str) -> UsageError:
        return UsageError(
            f"Cannot listen on {self.host}:{self.port}: {reason}. Give --host an address of this"
            " machine."
        )
