"""Starts a test's Python processes quickly, by forks of a process that has imported the command line.

A new interpreter spends a second or two on imports, and the tests start hundreds. This module
therefore replaces the way in which ``subprocess`` starts a process. If the command is this
interpreter with ``-m``, ``-c`` or a script, or the ``anabranch`` program, then the *preloaded
process* forks, and the fork runs the command. A test cannot tell the difference:

* the fork has the requested arguments, folder, environment, descriptors, signals, session and
  process group;
* the fork is a child of the caller. The process between the two ends while the caller is a
  *subreaper*, which adopts orphaned descendants; so the pid is real, and the caller can wait for it;
* the fork ends as an interpreter does: with the status, the traceback, and SIGINT for an uncaught
  KeyboardInterrupt. Only objects that live to the end are not finalized, since finalizing would
  copy all shared memory.

Each fork gets another preloaded process, forked before the fork ran anything, for the processes
that the fork starts.

Other programs start in the ordinary way. The same holds for Python processes with a ``preexec_fn``,
another user or umask, or another value of a variable that an interpreter reads at its start. Within
`cold`, or if ``ANABRANCH_TEST_COLD=1`` is set, all processes start in the ordinary way: tests of a
start's imports need this.

This file is also the program of the preloaded process, so it imports no module of the tests.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import fcntl
import gc
import io
import json
import multiprocessing.process
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeAlias

Order: TypeAlias = dict[str, Any]
"""The description of a process to start, without its descriptors."""

COLD = "ANABRANCH_TEST_COLD"

SHARED: set[int] = set()
"""The preloaded processes of this process, which all tests share."""

_SETTABLE = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
"""Variables that an interpreter reads at its start and whose effect can be produced later as well."""

_MODULES = (
    "anabranch.chat._web.application",
    "anabranch.chat._terminal",
    "anabranch.stores._calls",
    "anabranch.stores._memories",
    "anabranch.stores._run_events",
    "anabranch.stores._trees",
    "anyio._backends._asyncio",
    "cyclopts.help",
    "detect_secrets.plugins.base",
    "encodings.idna",
    "jsonschema",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "questionary",
    "rich.logging",
    "rich.markdown",
    "sqlalchemy.dialects.sqlite",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.h11_impl",
)
"""Modules that commands import when they run, in addition to those that the command line imports."""

_CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as process:
    process.connect({address!r})
    order = {{**{order!r}, "folder": os.getcwd(), "variables": dict(os.environ)}}
    order["arguments"] = [*{arguments!r}, *sys.argv[1:]]
    order = json.dumps(order).encode()
    socket.send_fds(process, [len(order).to_bytes(4, "big")], [0, 1, 2])
    process.sendall(order)
    pid = int.from_bytes(process.recv(4), "big")
    def pass_on(number, _):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    os._exit(int.from_bytes(process.recv(4), "big"))
"""
"""A program that passes its arguments, environment, folder, streams and signals on, and waits for the end."""


class Preloaded:
    """A connection to a preloaded process; ``subprocess`` calls it instead of
    ``_posixsubprocess.fork_exec``.
    """

    def __init__(
        self, variables: Mapping[str, str], connection: socket.socket | None = None
    ) -> None:
        """Use the process at the other end of ``connection``; without one, start a process when needed."""
        self._variables = {**variables}
        self._connection = connection
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = connection is not None
        self._ordinary_start = _posixsubprocess.fork_exec
        self._one_at_a_time = threading.Lock()
        self._owner = os.getpid()  # a fork of this process is no descendant of the preloaded one

    @contextmanager
    def installed(self) -> Generator[Preloaded]:
        """Install this object for the block, and yield it."""
        if sys.platform == "linux":
            self.install()
        try:
            yield self
        finally:
            _posixsubprocess.fork_exec = _subprocess._fork_exec = self._ordinary_start
            self._end()

    def install(self) -> None:
        """Make ``subprocess`` and ``multiprocessing`` start Python processes through this object."""
        _posixsubprocess.fork_exec = _subprocess._fork_exec = self
        _subprocess._USE_POSIX_SPAWN = False  # ``posix_spawn`` would bypass this object

    def program(self, *arguments: str) -> str:
        """Return the source of a program that asks this object to run Python with both sets of
        ``arguments``.
        """
        if sys.platform != "linux" or os.environ.get(COLD) == "1":
            return f'#!/bin/sh\nexec "{sys.executable}" {" ".join(arguments)} "$@"\n'
        order = {"targets": [0, 1, 2], "started": -1, "session": False, "group": -1}
        order |= {"ignored": [], "blocked": []}
        self._connected()
        assert self._process is not None
        address = _address(self._process.pid)
        return _CLIENT.format(
            python=sys.executable, address=address, order=order, arguments=list(arguments)
        )

    def __call__(self, *options: Any) -> int:
        args, programs, close_fds, kept, folder, env, *pipes = options[:14]
        _, session, group, *owner, before = options[14:22]
        there = os.path.abspath(os.fsdecode(folder or "."))  # noqa: PTH100 - bytes, too
        arguments = _python_arguments(args, programs, there)
        variables = dict(os.environ) if env is None else dict(_pairs(env))
        if (
            arguments is None
            or not close_fds
            or [*owner, before] != [None, None, None, -1, None]
            or not Path(there).is_dir()
            or not self._fits(variables)
            or os.getpid() != self._owner
            or os.environ.get(COLD) == "1"
        ):
            return self._ordinary_start(*options)  # type: ignore[no-any-return]
        stdin, _, _, stdout, _, stderr, _, started = pipes
        given = enumerate((stdin, stdout, stderr))
        sources = {target: target if source == -1 else source for target, source in given}
        sources |= {descriptor: descriptor for descriptor in (*kept, started)}
        sources = {target: source for target, source in sources.items() if _is_open(source)}
        order = {
            "arguments": arguments,
            "variables": variables,
            "folder": there,
            "targets": list(sources),
            "started": started,
            "session": bool(session),
            "group": group,
            "ignored": [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN],
            "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        }
        with self._one_at_a_time, _subreaper():
            return self._started(order, list(sources.values()))

    def _started(self, order: Order, descriptors: Sequence[int]) -> int:
        """Return the pid of an ordered process. After a failure, start another preloaded process
        for the next order.

        If a test's time runs out during the start, the next test waits for the rest of the imports.
        It must not take the answer to this order for its own.
        """
        try:
            connection = self._connected()
            _send(connection, order, descriptors)
            return _number(connection)
        except RuntimeError:
            self._replace()
            raise
        except BaseException:
            if self._is_ready:
                self._replace()
            raise

    def _fits(self, variables: Mapping[str, str]) -> bool:
        """Return whether the preloaded process can become an interpreter with these variables."""
        ours, theirs = (
            {name: value for name, value in one.items() if name.startswith("PYTHON") and value}
            for one in (self._variables, variables)
        )
        return (
            {name for name, _ in ours.items() ^ theirs.items()} <= _SETTABLE
            and {*_search_path(ours)} <= {*_search_path(theirs)}
            and _stream_errors(self._variables) is not None
            and _stream_errors(variables) is not None
        )

    def _connected(self) -> socket.socket:
        if self._connection is None:
            ours, theirs = socket.socketpair()
            with theirs, cold():
                process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # Only a process with one thread can fork safely.
                    env={**self._variables, "OPENBLAS_NUM_THREADS": "1"},
                )
            self._connection, self._process = ours, process
            SHARED.add(process.pid)
        if not self._is_ready:
            _number(self._connection)
            self._is_ready = True
        return self._connection

    def _replace(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._end()
        self._connection, self._process, self._is_ready = None, None, False

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.wait()
            SHARED.discard(self._process.pid)


_subprocess: Any = subprocess
_posixsubprocess: Any = import_module("_posixsubprocess")
"""Modules with private names that no type checker knows."""


@contextmanager
def cold() -> Generator[None]:
    """Start every process in the ordinary way within the block."""
    before = os.environ.get(COLD)
    os.environ[COLD] = "1"
    try:
        yield
    finally:
        del os.environ[COLD]
        if before is not None:
            os.environ[COLD] = before


@contextmanager
def _subreaper() -> Generator[None]:
    """Make this process adopt the orphaned descendants of its children within the block."""
    prctl, set_subreaper = ctypes.CDLL(None).prctl, 36
    assert prctl(set_subreaper, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        assert prctl(set_subreaper, 0, 0, 0, 0) == 0


def _python_arguments(
    args: Sequence[str | bytes], programs: Sequence[bytes], folder: str
) -> list[str] | None:
    """Return the arguments of this interpreter; `None` for another interpreter or other options."""
    found = next((os.fsdecode(one) for one in programs if os.access(one, os.X_OK)), None)
    arguments = [os.fsdecode(argument) for argument in args][1:]
    command = str(Path(sys.executable).with_name("anabranch"))
    if found == command:
        return [command, *arguments]
    options = arguments[1:] if arguments[:1] in (["-P"], ["-B"]) else arguments
    runs = options[:1] in (["-m"], ["-c"]) and len(options) > 1
    script = bool(options) and options[0].endswith(".py") and Path(folder, options[0]).is_file()
    return arguments if found == sys.executable and (runs or script) else None


def _pairs(env: Sequence[bytes]) -> Generator[tuple[str, str]]:
    for pair in env:
        name, _, value = os.fsdecode(pair).partition("=")
        yield name, value


def _search_path(variables: Mapping[str, str]) -> list[str]:
    given = variables.get("PYTHONPATH", "")
    return [os.path.abspath(entry) for entry in given.split(os.pathsep) if entry]  # noqa: PTH100


def _stream_errors(variables: Mapping[str, str]) -> str | None:
    """Return how the interpreter's streams handle invalid UTF-8; `None` if the encoding is another one."""
    found = (variables.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, found), "C")
    if locale in {"C", "POSIX", "C.UTF-8", "C.utf8"}:
        return "surrogateescape"
    return "strict" if locale.upper().replace("-", "").endswith(".UTF8") else None


def _is_open(descriptor: int) -> bool:
    with suppress(OSError):
        os.fstat(descriptor)
        return True
    return False


def _address(pid: int) -> str:
    return f"\0anabranch-preloaded-{pid}"


def _send(connection: socket.socket, order: Order, descriptors: Sequence[int]) -> None:
    text = json.dumps(order).encode()
    try:
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], descriptors)
        connection.sendall(text)
    except BrokenPipeError:
        pass  # the caller notices the missing answer


def _number(connection: socket.socket) -> int:
    answer = connection.recv(4, socket.MSG_WAITALL)
    if not answer:
        raise RuntimeError("The preloaded process has died; what it wrote to stderr says why.")
    return int.from_bytes(answer, "big")


# The rest of this file runs in the preloaded process and its forks.


def _main() -> None:
    variables = dict(os.environ)
    given = _search_path(variables)
    own = [entry for entry in sys.path[1:] if entry not in given]  # without the folder of this file
    sys.path[:] = [*given, *own]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)  # a signal to the whole group is meant for the forks
    commands = import_module("anabranch.cli")
    own_modules = [f"anabranch.cli.{module.name}" for module in iter_modules(commands.__path__)]
    for name in (*own_modules, *_MODULES):
        if not name.startswith("anabranch.cli._brows"):  # only screens need these modules
            import_module(name)
    control = socket.socket(fileno=int(sys.argv[1]))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_address(os.getpid()))
    listener.listen()
    gc.collect()
    gc.freeze()  # otherwise each fork would copy all memory at its garbage collection
    control.sendall(bytes(4))
    if order := _serve(control, listener):
        order["path"] = own
        _run(order)


def _serve(control: socket.socket, listener: socket.socket | None = None) -> Order | None:
    """Fork for each order. Return the order in the new fork, or `None` when no more orders come.

    Args:
        control: the connection to the process that becomes the parent of the forks.
        listener: accepts programs that wait for their fork, and receive its status.
    """
    watched = [control, *([listener] if listener else [])]
    while True:
        ready = select.select(watched, [], [])[0][0]
        client = control if ready is control else ready.accept()[0]
        received = _received(client)
        if received is None:
            return None
        reading, writing = os.pipe()
        if not (between := os.fork()):
            parent = os.getpid()
            if not (child := os.fork()):
                while client is control and os.getppid() == parent:
                    os.sched_yield()  # until the caller has adopted the fork
                for one in {*watched, client}:
                    one.detach()
                return _become(*received)
            os.write(writing, child.to_bytes(4, "big"))
            if client is not control:
                # The pid comes before the status, which may follow immediately.
                client.sendall(child.to_bytes(4, "big"))
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                client.sendall((status if status >= 0 else 128 - status).to_bytes(4, "big"))
            os._exit(0)
        pid = os.read(reading, 4)
        for descriptor in (reading, writing, *received[1]):
            os.close(descriptor)
        if client is control:
            os.waitpid(between, 0)  # from here on, the fork is a child of the caller
            client.sendall(pid)
        else:
            client.close()
            _reap()


def _received(connection: socket.socket) -> tuple[Order, list[int]] | None:
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 250)
    if not size:
        return None
    text = b""
    while (missing := int.from_bytes(size, "big") - len(text)) and (
        more := connection.recv(missing)
    ):
        text += more
    return json.loads(text), descriptors


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _become(order: Order, descriptors: list[int]) -> Order | None:
    """Become the ordered process, except for the program that it runs."""
    if order["session"]:
        os.setsid()
    if order["group"] >= 0:
        os.setpgid(0, order["group"])
    ours, theirs = socket.socketpair()
    if not os.fork():
        _close_all_but(0, 1, 2, theirs.fileno())
        ours.detach()
        return _serve(theirs) or os._exit(0)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        ignored = number in order["ignored"] or number in {signal.SIGPIPE, signal.SIGXFSZ}
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    if signal.SIGINT not in order["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 200) for one in (ours.detach(), *descriptors)]
    for target, descriptor in zip(order["targets"], high[1:], strict=True):
        os.dup2(descriptor, target)
    theirs.detach()
    _close_all_but(high[0], *order["targets"])
    Preloaded(os.environ, socket.socket(fileno=high[0])).install()
    os.environ.clear()
    os.environ.update(order["variables"])
    time.tzset()
    os.chdir(order["folder"])
    if order["started"] >= 0:
        os.close(order["started"])
    signal.pthread_sigmask(signal.SIG_SETMASK, order["blocked"])
    return order


def _close_all_but(*kept: int) -> None:
    below = [-1, *sorted({*kept})]
    for low, high in zip(below, [*below[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        if low + 1 < high:
            os.closerange(low + 1, high)


def _run(order: Order) -> None:
    """Do what an interpreter does from its start to its end, in the process of ``order``."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(descriptor, name)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    setattr(multiprocessing.process, "ORIGINAL_DIR", order["folder"])  # noqa: B010 - undeclared
    status = 0
    try:
        _execute(order)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if not isinstance(error.code, int | None):
            sys.stderr.write(f"{error.code}\n")
    except BaseException as error:  # noqa: BLE001 - as an interpreter does
        shown = error.__traceback__
        while shown and shown.tb_frame.f_code.co_filename == __file__:
            shown = shown.tb_next
        sys.excepthook(type(error), error.with_traceback(shown), shown)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    _end(status)


def _end(status: int) -> None:
    """End the process as an interpreter does; a negative status ends it by a signal."""
    modules: tuple[Any, Any] = threading, atexit
    modules[0]._shutdown()
    modules[1]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError as error:
            status = 120
            with suppress(OSError):
                sys.stderr.write(f"Exception ignored in: {stream!r}\n{error!r}\n")
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


def _stream(descriptor: int, name: str) -> io.TextIOWrapper:
    """Return a standard stream, opened as a new interpreter opens it."""
    reads, unbuffered = name == "stdin", bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = io.FileIO(descriptor, "r" if reads else "w", closefd=False)
    raw.name = f"<{name}>"
    buffer: Any = raw
    if reads or not unbuffered:
        buffer = io.BufferedReader(raw) if reads else io.BufferedWriter(raw)
    stream: Any = io.TextIOWrapper(
        buffer,
        "utf-8",
        "backslashreplace" if name == "stderr" else _stream_errors(os.environ),
        None if reads else "\n",
        line_buffering=(name == "stderr" or raw.isatty()) and not unbuffered,
        write_through=unbuffered,
    )
    stream.mode = raw.mode[0]
    return stream  # type: ignore[no-any-return]


def _execute(order: Order) -> None:
    arguments: list[str] = order["arguments"]
    sys.orig_argv = [sys.executable, *arguments]
    safe = arguments[0] == "-P" or bool(os.environ.get("PYTHONSAFEPATH"))
    arguments = arguments[arguments[0] in {"-P", "-B"} :]
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.path[:] = [*_search_path(os.environ), *order["path"]]
    option, *rest = arguments
    if option == "-m":
        sys.argv = ["-m", *rest[1:]]
        first = order["folder"]
    elif option == "-c":
        sys.argv = ["-c", *rest[1:]]
        first = ""
    else:
        sys.argv = arguments
        first = str(Path(option).resolve().parent)
    if not safe:
        sys.path.insert(0, first)
    if option == "-m":
        private: Any = runpy
        private._run_module_as_main(rest[0])
        return
    if option == "-c":
        code = compile(rest[0], "<string>", "exec")
    else:
        path = str(Path(option).absolute())
        loader = SourceFileLoader("__main__", path)
        main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
        code = compile(loader.get_data(path), path, "exec")
    exec(code, main.__dict__)  # noqa: S102


if __name__ == "__main__":
    _main()
