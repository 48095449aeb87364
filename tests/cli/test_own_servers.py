"""``anabranch serve`` on a file that creates its own server: options of the command line apply."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from mcp.server.mcpserver import MCPServer
from uvicorn.config import STARTUP_FAILURE

from anabranch._budget import Limits
from anabranch.cli._combined_server import ServerRecipe, opens, seal_probe, seals_with, tool_names
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._option_groups import Asking, Persistence
from anabranch.cli._serving import WorkerApp, not_used
from anabranch.cli._stores import read_keys
from anabranch.cli._targets import identity_of, name_of
from anabranch.stores import open_store
from tests.mcp.harness import KEY, MODERN, Answers, accept, call_once, connected, echo, text_of
from tests.sagas.harness import call_saga

OWN = """\
from pydantic import BaseModel
from anabranch import tool
from anabranch.mcp import create_server

class Ok(BaseModel):
    ok: bool

@tool
async def ask(ctx) -> str:
    'Ask.'
    return (await ctx.elicit(Ok, "Ok?")).action

server = create_server("own", [ask]{options})
"""

THEIRS = """\
from mcp.server.mcpserver import MCPServer

server = MCPServer("theirs")

@server.tool()
def one() -> int:
    return 1
"""


def recipe(folder: Path, code: str, store: str | None = None) -> ServerRecipe:
    target = folder / "own.py"
    target.write_text(code)
    return ServerRecipe((str(target),), None, (KEY,), Persistence(store, ttl=123.0))


def made(
    folder: Path, options: str = "", store: str | None = None
) -> tuple[MCPServer[Any], set[str]]:
    server, unused, *_ = recipe(folder, OWN.replace("{options}", options), store).make_server()
    assert isinstance(server, MCPServer)
    return server, unused


SAMPLES = """
from anabranch import BranchContext, tool

@tool
async def greet(ctx: BranchContext) -> str:
    '''Greet.'''
    return (await ctx.sample("Hello")).text
"""


async def test_the_model_of_the_command_is_asked_first_or_last(tmp_path: Path) -> None:
    target, script = tmp_path / "greets.py", tmp_path / "script.json"
    target.write_text(SAMPLES)
    script.write_text('[{"text": "own"}]')
    first = ServerRecipe((str(target),), f"script:{script}", (KEY,), Persistence())
    last = replace(first, asking=Asking(sampler_mode="prefer-client"))
    for made_of, text in ((first, "own"), (last, "<Hello>")):
        server, *_ = await to_thread.run_sync(made_of.make_server)
        async with connected(server, MODERN, Answers(sample=echo)) as client:
            assert text_of(await client.call_tool("greet")) == text


DIVES = """
from anabranch import BranchContext, Limits, tool
from anabranch.mcp import create_server

async def leaf(ctx: BranchContext) -> str:
    return (await ctx.sample("Hello", max_tokens=500)).text

@tool
async def dive(ctx: BranchContext) -> str:
    '''Ask in a branch.'''
    return await ctx.branch(leaf)
"""


@pytest.mark.parametrize(
    "own", ["", "server = create_server('own', [dive], limits=Limits(max_tokens=100, max_depth=1))"]
)
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(max_depth=0), "max_depth=0"),
        (Limits(max_tokens=1), "may use 1."),
        (Limits(max_tokens=50, max_depth=9), "<Hello>"),
    ],
)
async def test_limits_of_the_command_enclose_every_call(
    tmp_path: Path, own: str, limits: Limits, said: str
) -> None:
    target = tmp_path / "dives.py"
    target.write_text(DIVES + own)
    recipe = ServerRecipe((str(target),), None, (KEY,), Persistence(), limits=limits)
    server, unused, *_ = await to_thread.run_sync(recipe.make_server)
    assert unused == set()
    async with connected(server, MODERN, Answers(sample=echo)) as client:
        assert said in text_of(await client.call_tool("dive"))


async def test_a_question_of_one_worker_is_answered_at_another(tmp_path: Path) -> None:
    servers = [(await to_thread.run_sync(made, tmp_path))[0] for _ in range(2)]
    answers = Answers(lambda _: accept(ok=True))
    async with connected(servers[0], MODERN, answers) as client:
        asked = await call_once(client, "ask")
    async with connected(servers[1], MODERN, answers) as client:
        (step,) = asked["inputRequests"]
        given = {step: {"action": "accept", "content": {"ok": True}}}
        reply = await call_once(client, "ask", state=asked["requestState"], responses=given)
    assert reply["structuredContent"] == {"result": "accept"}


def test_a_store_is_handed_to_a_server_that_has_none(tmp_path: Path) -> None:
    server, unused = made(tmp_path, store=f"sqlite:///{tmp_path}/calls.db")
    assert tool_names(server) == ["ask", "continue_call"]
    assert unused == set()


def test_settings_of_the_server_itself_are_used_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ", keys=['o' * 32], store='memory:', ttl=5"
    server, unused = made(tmp_path, options, store="sqlite:///other.db")
    assert unused == {"keys", "store", "ttl"}
    assert not seals_with(server, [KEY])
    monkeypatch.setenv("ANABRANCH_KEYS", KEY)
    lines = not_used(unused)
    assert [line.partition(" has no effect")[0] for line in lines] == [
        "ANABRANCH_KEYS",
        "--store (ANABRANCH_STORE)",
        "--ttl",
    ]
    monkeypatch.delenv("ANABRANCH_KEYS")
    assert len(not_used(unused)) == 2
    assert not_used({"ask_url"})[0].startswith("--ask-url has no effect")


def test_workers_of_a_server_with_keys_of_one_process_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = recipe(tmp_path, THEIRS)
    probe = seal_probe(theirs.make_server()[0])
    with pytest.raises(SystemExit, match=str(STARTUP_FAILURE)):
        WorkerApp(theirs, Endpoint(), probe)()
    assert "'theirs' seals its questions with its own keys" in capsys.readouterr().err


def keys_for(folder: Path, audience: str) -> list[str]:
    def say(line: str) -> None:
        raise AssertionError(line)

    return read_keys({}, say, folder / "data", audience=audience)


@pytest.mark.parametrize("code", [OWN.replace("{options}", ""), OWN.partition("server =")[0]])
def test_servers_of_one_user_do_not_accept_each_others_states(tmp_path: Path, code: str) -> None:
    """The test covers equal names of the files and of the servers."""
    servers: list[Any] = []
    for folder in ("staging", "production", "production"):
        target = tmp_path / folder / "app.py"
        target.parent.mkdir(exist_ok=True)
        target.write_text(code)
        keys = keys_for(tmp_path, identity_of([str(target)]))
        made = ServerRecipe((str(target),), None, tuple(keys), Persistence())
        servers.append(made.make_server()[0])
    staging, production, restarted = servers
    assert not opens(production, seal_probe(staging))
    assert opens(restarted, seal_probe(production))


def test_a_server_is_named_after_its_targets_unless_it_has_a_name(tmp_path: Path) -> None:
    tools = recipe(tmp_path, OWN.partition("server =")[0])
    assert tools.make_server()[0].name == "own"
    assert replace(tools, name="travel").make_server()[0].name == "travel"
    assert name_of([f"{tools.targets[0]}:ask", "json.decoder"]) == "own+json.decoder"


def test_a_name_for_a_server_that_has_one_is_reported(tmp_path: Path) -> None:
    with_server = recipe(tmp_path, OWN.replace("{options}", ""))
    server, unused, *_ = replace(with_server, name="travel").make_server()
    assert (server.name, unused) == ("own", {"name"})
    assert not_used(unused) == [
        "--name has no effect on a server of the target, which sets its own name."
    ]


def test_the_version_of_a_server_is_that_of_its_target(tmp_path: Path) -> None:
    versioned = "__version__ = '4.2'\n" + OWN.partition("server =")[0]
    assert recipe(tmp_path, versioned).make_server()[0].version == "4.2"


async def test_a_served_call_has_the_version_of_the_command(tmp_path: Path) -> None:
    """Without a given version, the call has a digest of the target's files."""
    url = f"sqlite:///{tmp_path}/calls.db"
    plain = recipe(tmp_path, OWN.partition("server =")[0])
    found: list[str] = []
    for version in ("7", None):
        stored = replace(plain, persistence=Persistence(url, version=version))
        async with connected(stored.make_server().server, MODERN, Answers()) as client:
            await call_saga(client, "ask", {})
        store = open_store(url)
        found += [each.version for each in await store.calls(1)]
        await store.close()
    assert found[0] == "7"
    assert len(found[1]) == 12


async def test_results_of_a_served_target_have_links(tmp_path: Path) -> None:
    target = tmp_path / "own.py"
    target.write_text(OWN.partition("server =")[0])
    asking = Asking(ask_fallback=True, ask_url="https://x.example")
    made_of = ServerRecipe((str(target),), None, (KEY,), Persistence("memory:"), asking=asking)
    server, *_ = await to_thread.run_sync(made_of.make_server)
    async with connected(server, MODERN) as client:
        assert "https://x.example/ask/" in text_of(await client.call_tool("ask"))
