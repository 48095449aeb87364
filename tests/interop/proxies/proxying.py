"""nginx and Caddy as processes of the tests, with the configurations of docs/reverse-proxy.md."""

import os
import re
import socket
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT
from tests.patience import PATIENCE

HOST: Final = "tools.example.org"
"""The name that the configurations serve."""

NGINX: Final = """
daemon off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/anabranch.conf;
}}
"""
"""The main configuration, as a system has one; the temporary folders need no rights here."""

Proxy = Callable[[Path, str, int], list[str]]
"""Writes the configuration for an upstream and a port, and returns the command."""


def shown(title: str) -> str:
    """Return the configuration in the page, with timeouts that a test can wait for."""
    text = (ROOT / "docs/reverse-proxy.md").read_text(encoding="utf-8")
    block = re.search(rf'^```text title="{title}"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    assert block, f"{title} is not in the page"
    return re.sub(r"\b[13]0s\b", "1s", block[1])


def put(text: str, old: str, new: str) -> str:
    """Return ``text`` with a change that the test needs; fail if the page no longer has the old text."""
    assert text.count(old) == 1, f"{old!r} is not in the page once"
    return text.replace(old, new)


def nginx(folder: Path, upstream: str, port: int) -> list[str]:
    text = put(shown("nginx.conf"), "127.0.0.1:8000", upstream)
    text = put(text, "listen 80;", f"listen 127.0.0.1:{port};")
    (folder / "anabranch.conf").write_text(text)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    return ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, upstream: str, port: int) -> list[str]:
    text = put(shown("Caddyfile"), "127.0.0.1:8000", upstream)
    text = put(text, f"\n{HOST} {{", f"\nhttp://{HOST}:{port} {{\n\tbind 127.0.0.1")
    (folder / "Caddyfile").write_text(text.replace("{\n", "{\n\tadmin off\n", 1))
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


PROXIES: Final[dict[str, Proxy]] = {"nginx": nginx, "caddy": caddy}


@contextmanager
def proxying(proxy: Proxy, folder: Path, upstream: str) -> Generator[tuple[str, int]]:
    """Run a proxy in front of the server at ``upstream``; yield the address of the proxy."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address: tuple[str, int] = free.getsockname()
    homes = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command = proxy(folder, upstream, address[1])
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **homes}
        )
        try:
            await_port(address, process, folder / "log")
            yield address
        finally:
            process.terminate()
            process.wait(PATIENCE)


def await_port(address: tuple[str, int], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a process listens on the port, or the process has ended."""
    while process.poll() is None:
        try:
            socket.create_connection(address).close()
        except ConnectionRefusedError:
            continue
        return
    raise AssertionError(log.read_text())
