"""``anabranch web`` never shows a given token; it shows a token that it makes, and only at a terminal."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from anabranch.cli import main
from tests.cli.terminals import CTRL_C, terminal
from tests.patience import PATIENCE

TOKEN = "sixteen-characters-and-more"
ANY = "0.0.0.0"  # noqa: S104 - the port is free, and the token is hard to guess
WEB = ("web", "--port", "0", "--store", "memory:")


@pytest.mark.parametrize("by_variable", [True, False], ids=["variable", "option"])
def test_a_token_that_was_given_is_never_shown(by_variable: bool) -> None:
    option = () if by_variable else ("--token", TOKEN)
    variables = {**os.environ, **({"ANABRANCH_WEB_TOKEN": TOKEN} if by_variable else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", *WEB, *option, "--access-log"],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        first = process.stderr.readline() + process.stderr.readline()
        address = re.findall(r"http://\S+", first)[0].partition("?")[0]
        with httpx2.Client(base_url=address, timeout=PATIENCE) as client:
            assert client.get("/threads").status_code == 401
            assert client.get(f"/?token={TOKEN}").status_code == 303
            assert client.get("/threads").status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE)
    assert "add ?token= and the token" in first
    assert "GET /" in said
    assert TOKEN not in first + said + out


def test_a_generated_token_is_shown_at_a_terminal() -> None:
    with terminal(*WEB, "--host", ANY, "--allowed-host", "localhost", whole=True) as user:
        shown = r"The chat is at\s+http://0\.0\.0\.0:(\d+)/\?token=([\w-]{43})\s"
        user.wait_until(lambda screen: re.search(shown, screen + "\n"))
        [(port, token)] = re.findall(shown, user.screen + "\n")
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            assert client.get("/threads").status_code == 401
            bearer = {"Authorization": f"Bearer {token}"}
            assert client.get("/threads", headers=bearer).status_code == 200
        user.type(CTRL_C)


def test_no_token_is_generated_without_a_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*WEB, "--host", ANY]) == 2
    out, said = capsys.readouterr()
    assert (out, "Set a token" in said) == ("", True)
