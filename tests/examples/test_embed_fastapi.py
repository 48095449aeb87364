"""The chat inside a FastAPI application: its users' conversations, next to its own routes."""

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from anabranch.chat import ChatClient, ChatClientError
from examples import embed_fastapi
from tests.chat.answerers import Desk, results
from tests.chat.web import serving
from tests.patience import PATIENCE

ANN, BO = {"Cookie": "session=cookie-of-ann"}, {"Cookie": "session=cookie-of-bo"}


async def test_users_of_an_application_play_in_separate_conversations() -> None:
    desk = Desk({"guests": 2})
    async with serving(embed_fastapi.app, lifespan="on") as url:
        ann = ChatClient(f"{url}/chat", headers=ANN, otherwise=desk)
        played = [event async for event in ann.stream("anns", "/reserve day=Monday")]
        [result] = results(played)
        assert "A table for 2" in str(result)
        assert (await ann.say("anns", "hello")).text == "Hello."
        with pytest.raises(ChatClientError, match="Unknown thread 'anns'"):
            await ChatClient(f"{url}/chat", headers=BO).stop("anns")
        with pytest.raises(ChatClientError) as refused:
            await ChatClient(f"{url}/chat").say("anns", "hello")
        assert refused.value.status == 401
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            assert (await client.get("/", headers=ANN)).json() == "Hello, ann."
            page = await client.get("/chat/", headers=ANN)
            assert "<title>anabranch</title>" in page.text


def test_it_runs_from_its_own_folder() -> None:
    """``uvicorn embed_fastapi:app`` imports it from its folder, where nothing else of this project
    is on the path.
    """
    folder = Path(embed_fastapi.__file__).parent
    subprocess.run([sys.executable, "-c", "import embed_fastapi"], cwd=folder, check=True)


def test_it_is_short() -> None:
    assert len(Path(embed_fastapi.__file__).read_text("utf-8").splitlines()) < 50
