"""Each rule finds its subject, and nothing else."""

from textwrap import indent

import pytest

from anabranch.replay_check._rules import RULES
from tests.replay_check.conftest import Check

OPENED = """from contextlib import asynccontextmanager
from mcp import Client
@asynccontextmanager
async def opened():
    async with Client('x') as client:
        yield client
"""
WARMED = """from contextlib import asynccontextmanager
from mcp import Client
@asynccontextmanager
async def warmed():
    async with Client('x') as client:
        pass
    yield 1
"""
SHOP = """from mcp import Client
class Shop:
    async def __aenter__(self):
        self.client = await Client('x').__aenter__()
        return self
    async def __aexit__(self, *error): ...
"""
FOUND = {
    "clock": [
        ("import time", "time.time()"),
        ("import time", "time.monotonic()"),
        ("import time as tick", "tick.perf_counter_ns()"),
        ("from time import time as now", "now()"),
        ("import time", "time.localtime()"),
        ("import time", "time.strftime('%H')"),
        ("import datetime", "datetime.datetime.now()"),
        ("from datetime import datetime as dt, UTC", "dt.now(UTC).isoformat()"),
        ("from datetime import date", "date.today()"),
        ("import asyncio", "asyncio.get_running_loop().time()"),
        ("import asyncio", "loop = asyncio.get_running_loop()\nloop.time()"),
        ("import time", "sorted([2, 1], key=lambda _: time.time())"),
        ("import time", "await ctx.step(print, time.time())"),
        (
            "from functools import partial\nimport time",
            "await ctx.step(partial(print, time.time()))",
        ),
        ("import asyncio, time", "await asyncio.to_thread(time.time)"),
    ],
    "randomness": [
        ("import random", "random.choice([1])"),
        ("from random import shuffle as mix", "mix([1])"),
        ("import random", "random.Random().random()"),
        ("import random", "chance = random.SystemRandom()\nchance.random()"),
        ("import secrets", "secrets.token_hex()"),
        ("import uuid", "str(uuid.uuid4())"),
        ("from uuid import uuid1", "uuid1()"),
        ("import os", "os.urandom(4)"),
    ],
    "process-identity": [("", "hash('x')"), ("", "id(ctx)"), ("import os", "os.getpid()")],
    "network": [
        ("import httpx2", "httpx2.get('x')"),
        (
            "from mcp import Client",
            "async with Client('x') as client:\n    await client.call_tool('y')",
        ),
        (
            "from fastmcp import Client",
            "async with Client('x') as client:\n    await client.list_tools()",
        ),
        (
            "from mcp import Client\nasync def helper():\n    async with Client('x') as c:\n        await c.call_tool('y')",
            "await helper()",
        ),
        (
            "from mcp import ClientSession",
            "session = ClientSession()\nawait session.read_resource('x')",
        ),
        ("import httpx2", "async with httpx2.AsyncClient() as web:\n    await web.get('x')"),
        ("import httpx2 as h", "await web(h.AsyncClient())\n"),
        ("from urllib.request import urlopen", "urlopen('x')"),
        ("import socket", "socket.create_connection(('x', 1))"),
        ("import socket", "s = socket.socket()\ns.connect(('x', 1))"),
        ("import smtplib", "smtplib.SMTP('x')"),
        ("import asyncio", "await asyncio.open_connection('x', 1)"),
        ("from urllib import request", "await asyncio_to_thread(request.urlopen, 'x')"),
    ],
    "subprocess": [
        ("import subprocess", "subprocess.run(['x'])"),
        ("from os import system", "system('x')"),
        ("import asyncio", "await asyncio.create_subprocess_exec('x')"),
    ],
    "file-access": [
        ("", "open('x')"),
        ("", "with open('x') as file:\n    file.read()"),
        ("from pathlib import Path", "Path('x').read_text()"),
        ("from pathlib import Path", "path = Path('x') / 'y'\npath.unlink()"),
        ("from pathlib import Path", "Path('x').parent.joinpath('y').exists()"),
        ("from pathlib import Path\nHERE = Path(__file__)", "HERE.stat()"),
        ("import os", "os.remove('x')"),
        ("import os.path", "os.path.exists('x')"),
        ("import shutil", "shutil.rmtree('x')"),
        ("import tempfile", "tempfile.mkdtemp()"),
    ],
    "database": [
        ("import sqlite3", "sqlite3.connect('x')"),
        ("import sqlite3\nDB = sqlite3.connect(':memory:')", "DB.execute('select 1').fetchall()"),
        ("import sqlite3\nDB: sqlite3.Connection", "DB.commit()"),
        ("from sqlalchemy.orm import Session", "await save(Session())"),
        ("", "thing.db.execute('select 1')"),
        ("", "await session.commit()"),
    ],
    "console-output": [
        ("", "print('x')"),
        ("import sys", "print('x', file=sys.stderr)"),
        ("import sys", "sys.stdout.write('x')"),
    ],
    "console-input": [("", "input('x')"), ("from getpass import getpass", "getpass()")],
    "work-during-ask": [
        ("import asyncio", "task = asyncio.create_task(compute())\nawait ask(ctx)"),
        ("import asyncio", "await ask(ctx)\nawait asyncio.ensure_future(compute())"),
        (
            "import asyncio",
            "loop = asyncio.get_running_loop()\nloop.create_task(x())\nawait ask(ctx)",
        ),
        (
            "import asyncio",
            "async with asyncio.TaskGroup() as group:\n    group.create_task(compute())\n    await ask(ctx)",
        ),
        (
            "import anyio",
            "async with anyio.create_task_group() as group:\n    group.start_soon(compute, 1)\n    await ask(ctx)",
        ),
        (
            "import asyncio",
            "async def inner():\n    await ask(ctx)\n    asyncio.create_task(compute())\nawait inner()",
        ),
        ("from mcp import Client", "async with Client('x') as client:\n    await ask(ctx)"),
        ("from mcp import Client\nCLIENT = Client('x')", "async with CLIENT:\n    await ask(ctx)"),
        (
            "from mcp import Client\nasync def helper(c):\n    async with Client('x'):\n        await ask(c)",
            "await helper(ctx)",
        ),
        (OPENED, "async with opened() as client:\n    await ask(ctx)"),
        (f"{OPENED}\ndef again(): return opened()", "async with again():\n    await ask(ctx)"),
        (
            "from mcp import Client\ndef made(): return Client('x')",
            "async with made() as client:\n    await ask(ctx)",
        ),
        (SHOP, "async with Shop() as shop:\n    await ask(ctx)"),
        (SHOP, "shop = Shop()\nasync with shop:\n    await ask(ctx)"),
        (
            "from mcp import Client\nclass Shop:\n"
            + indent(
                "def __init__(self): self.client = Client('x')\n"
                "async def __aenter__(self): await self.client.__aenter__()\n"
                "async def __aexit__(self, *error): ...",
                "    ",
            ),
            "async with Shop():\n    await ask(ctx)",
        ),
        (
            "from contextlib import AsyncExitStack\nfrom mcp import Client",
            "async with AsyncExitStack() as stack:\n    await stack.enter_async_context(Client('x'))\n    await ask(ctx)",
        ),
        (
            "from contextlib import AsyncExitStack\nfrom mcp import Client",
            "stack = AsyncExitStack()\nawait stack.enter_async_context(Client('x'))\nawait ask(ctx)",
        ),
        ("from mcp.client.client import Client", "async with Client('x'):\n    await ask(ctx)"),
        ("from mcp import Client", "client = await Client('x').__aenter__()\nawait ask(ctx)"),
        (
            "from anabranch.agents import RemoteTools",
            "async with RemoteTools('http://localhost/mcp') as remote:\n    await ask(ctx)",
        ),
        (
            "from mcp.client.stdio import stdio_client",
            "async with stdio_client(x) as streams:\n    await ask(ctx)",
        ),
    ],
    "ask-in-finally": [
        ("", "try:\n    await ask(ctx)\nfinally:\n    await ctx.elicit(Name, 'x')"),
        ("", "try:\n    await ask(ctx)\nfinally:\n    await ask(ctx)"),
    ],
    "await-in-finally": [("", "try:\n    await ask(ctx)\nfinally:\n    await web('farewell')")],
    "timeout-around-ask": [
        ("import asyncio", "await asyncio.wait_for(ask(ctx), 3)"),
        ("import asyncio", "async with asyncio.timeout(3):\n    await ctx.elicit(Name, 'x')"),
        ("import anyio", "with anyio.fail_after(3):\n    await ask(ctx)"),
        ("from anyio import move_on_after", "with move_on_after(3):\n    await ask(ctx)"),
        ("import asyncio", "await asyncio.wait([asyncio.create_task(ask(ctx))], timeout=3)"),
    ],
    "unordered-asks": [
        ("", "for name in {'a', 'b'}:\n    await ctx.elicit(Name, name)"),
        ("", "names = set('ab')\nfor name in names:\n    await ask(ctx)"),
        ("", "await ctx.gather(*[ctx.sample(name) for name in frozenset('ab')])"),
        ("", "await ctx.gather(*{ctx.sample(name) for name in set('ab') | {'c'}})"),
        ("", "for n, name in enumerate(list({'a', 'b'})):\n    await ctx.branch(ask)"),
        ("", "await ctx.gather(*{ctx.sample('a'), ctx.sample('b')})"),
        ("", "for name in {'a', 'b'}:\n    await ctx.converse(name)"),
        ("", "def over(names: set[str]):\n    return [ctx.sample(n) for n in names]\nover(x)"),
    ],
    "global-mutation": [
        ("SEEN = []", "SEEN.append(1)"),
        ("SEEN = {}", "SEEN['x'] = 1"),
        ("SEEN = {'x': 1}", "del SEEN['x']"),
        ("COUNT = 0", "global COUNT\nCOUNT += 1"),
        ("COUNT = 0", "global COUNT\nx, COUNT = 1, 2"),
        ("from collections import deque\nSEEN = deque()", "SEEN.popleft()"),
        ("class State: x = 1\nSTATE = State()", "STATE.x = 2"),
    ],
    "not-awaited": [
        ("", "ctx.step(compute)"),
        ("", "ctx.log('info', 'x')"),
        ("", "answer = ctx.elicit(Name, 'x')\nanswer.content"),
        ("", "ctx.sample('x').text"),
        ("", "ctx.branch(ask)"),
        ("", "ctx.sleep(60)"),
        ("", "if ctx.patched('limit'): compute()"),
        ("", "x = 1 if x and not ctx.patched('limit') else 2"),
        ("", "if ctx.elicit(Name, 'x'): compute()"),
        ("", "while x or (y and ctx.patched('limit')): compute()"),
        ("", "isinstance(ctx.elicit(Name, 'x'), Accepted)"),
        ("", "answer = ctx.elicit(Name, 'x')\nif isinstance(answer, Accepted): compute()"),
        ("", "match ctx.elicit(Name, 'x'):\n    case _: compute()"),
        ("", "if ctx.sample('x') == 'y': compute()"),
        ("", "x = f'{ctx.sample(1)} y'"),
        ("", "x = 'y' + ctx.sample('x')"),
        ("", "x = ctx.call_tool(t)['x']"),
        ("", "first, second = ctx.gather(ctx.sample('x'), ctx.sample('y'))"),
        ("", "for each in ctx.gather(*x): compute()"),
        ("", "x = [each for each in ctx.gather(*x)]"),
        ("", "x = [each for each in x if ctx.patched('limit')]"),
        ("", "x = ctx.patched('limit') or 1"),
        ("", "assert ctx.patched('limit')"),
        ("", "await ctx.log('info', ctx.sample('x'))"),
        ("", "return ctx.sample('x')"),
        ("", "def inner(context): context.notify('x')\ninner(ctx)"),
    ],
}
"""Rule: (what stands before the tool, its body)."""

BEFORE = """
async def web(*given): ...
async def save(session: 'Session'): session.add(1)
async def asyncio_to_thread(fn, *args): ...
async def ask(ctx: BranchContext): await ctx.elicit(Name, 'x')
"""
WEB = "\nasync def web(client: h.AsyncClient): await client.post('x')\n"


def source(before: str, body: str) -> str:
    web = WEB if "web(h." in body else ""
    text = indent(body, "    ")
    return (
        f"{before}\n{BEFORE}{web}\n@tool\nasync def t(ctx: BranchContext):\n{text}\n    return 1\n"
    )


CASES = [
    pytest.param(rule, before, body, id=f"{rule}: {body}")
    for rule, cases in FOUND.items()
    for before, body in cases
]


@pytest.mark.parametrize(("rule", "before", "body"), CASES)
def test_a_rule_finds_its_subject(check: Check, rule: str, before: str, body: str) -> None:
    text = source(before, body)
    found = check(text)
    assert {finding.rule for finding in found} == {rule}
    assert all(finding.reason.endswith(".") and finding.fix.endswith(".") for finding in found)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        pytest.param(before, body, id=f"{rule}: {body}")
        for rule, cases in FOUND.items()
        for before, body in cases
        if "ctx" not in body  # a step cannot ask questions
    ],
)
def test_code_in_a_step_raises_no_finding(check: Check, before: str, body: str) -> None:
    """The same code, as the function of a step."""
    step = f"async def effect():\n{indent(body, '    ')}\nawait ctx.step(effect)"
    assert check(source(before, step)) == []


NOTHING = [
    ("from datetime import datetime", "datetime(2024, 1, 1)"),
    ("from datetime import datetime", "datetime.fromtimestamp(0)"),
    ("import time", "time.gmtime(0)\ntime.strftime('%H', time.gmtime(0))"),
    ("import asyncio", "await asyncio.sleep(1)"),
    ("import anyio", "await anyio.sleep(1)"),
    ("", "ctx.now()\nctx.uuid()\nctx.random.choice([1])"),
    ("import random", "random.Random(7).choice([1])"),
    ("import random", "chance = random.Random(ctx.call_id)\nchance.shuffle([1])"),
    ("import random", "def draw(random): return random.choice([1])\ndraw(ctx.random)"),
    ("import random", "random = ctx.random\nrandom.choice([1])"),
    ("", "open = len\nopen('x')"),
    ("from helpers_of_mine import open", "open('x')"),
    ("import time", "time = ctx\ntime.now()"),
    ("", "await ctx.elicit('name', 'x')\nawait ctx.elicit('name', str(1))"),
    ("", "later = ctx.elicit(Name, 'x')\nawait later"),
    ("", "later = ctx.elicit(Name, 'x')\nif later is not None: await later"),
    ("", "await (x or ctx.elicit(Name, 'x'))"),
    ("", "def later(): return ctx.elicit(Name, 'x')\nawait later()"),
    ("", "await ctx.gather(*[ctx.sample('x'), ctx.sample('y')])"),
    ("", "pair = ctx.sample('x'), ctx.sample('y')\nawait ctx.gather(*pair)"),
    ("import asyncio", "await asyncio.shield(ctx.elicit(Name, 'x'))"),
    ("", "if not await ctx.patched('limit') or x: compute()"),
    ("", "later = ctx.elicit(Name, 'x')\nawait ctx.gather(later)"),
    ("", "later = ctx.sample('x')\nlater.close()"),
    ("", "answer = await ctx.elicit(Name, 'x')\nanswer.content.data"),
    ("", "def show(context: dict): context.data.info()\nshow(x)"),
    ("", "[ctx.elicit(Name, n) for n in 'ab']"),
    ("from pathlib import Path", "Path('x').with_suffix('.py').name"),
    ("import os.path", "os.path.join('x', 'y')"),
    ("import httpx2", "httpx2.URL('x')\nhttpx2.Headers().get('x')"),
    ("import httpx2", "httpx2.AsyncClient()"),
    ("import httpx2", "def show(r: httpx2.Response): r.headers.get('x'); r.json()\nshow(x)"),
    ("from urllib.parse import quote", "quote('x')"),
    ("", "thing.execute('x')\n{}.get('x')"),
    ("import io", "print('x', file=io.StringIO())"),
    ("from uuid import UUID, uuid5, NAMESPACE_URL", "uuid5(NAMESPACE_URL, 'x')"),
    ("", "try:\n    await ask(ctx)\nfinally:\n    await web.aclose()"),
    ("", "try:\n    await ask(ctx)\nfinally:\n    await ctx.step(compute)"),
    ("", "try:\n    compute()\nfinally:\n    await ctx.elicit(Name, 'x')"),
    ("import asyncio", "await asyncio.wait_for(web('x'), 3)"),
    ("import asyncio", "async with asyncio.timeout(3):\n    await web('x')"),
    ("import asyncio", "await asyncio.wait([asyncio.create_task(ask(ctx))])"),
    ("import asyncio", "asyncio.create_task(compute())"),
    ("import asyncio", "tasks = [asyncio.create_task(ask(ctx)) for _ in 'ab']"),
    ("import asyncio", "asyncio.create_task(ctx.step(compute))\nawait ask(ctx)"),
    ("import asyncio", "async def work(c): await c.step(compute)\nasyncio.create_task(work(ctx))\nawait ask(ctx)"),
    ("import asyncio", "asyncio.create_task()\nawait ask(ctx)"),
    (
        "import asyncio",
        "async with asyncio.TaskGroup() as group:\n    group.create_task(ask(ctx))\n    await ask(ctx)",
    ),
    (
        "import anyio",
        "async with anyio.create_task_group() as group:\n    group.start_soon(ask, ctx)\n    await ask(ctx)",
    ),
    ("from mcp import Client", "async with Client('x') as client:\n    pass\nawait ask(ctx)"),
    (OPENED, "async with opened() as client:\n    pass\nawait ask(ctx)"),
    (WARMED, "async with warmed():\n    await ask(ctx)"),
    (
        "from contextlib import AsyncExitStack\nfrom mcp import Client",
        "async with AsyncExitStack() as stack:\n    await stack.enter_async_context(Client('x'))\nawait ask(ctx)",
    ),
    (f"{OPENED}\nasync def once():\n    async with opened() as c: await c.call_tool('y')", "await ctx.step(once)\nawait ask(ctx)"),
    ("from contextlib import nullcontext", "async with nullcontext():\n    await ask(ctx)"),
    ("", "for name in sorted({'a', 'b'}):\n    await ctx.elicit(Name, name)"),
    ("", "for name in {'a', 'b'}:\n    await ctx.elicit(Name, name, key=name)"),
    ("", "for name in {'a', 'b'}:\n    await ctx.branch(ask, name=name)"),
    ("", "for number in {1, 2}:\n    await ctx.elicit(Name, str(number))"),
    ("", "for name in {'a', 'b'}:\n    compute(name)"),
    ("", "for name in ['a', 'b']:\n    await ctx.elicit(Name, name)"),
    ("import asyncio", "await asyncio.gather(*[ask(ctx) for _ in 'ab'])"),
    ("SEEN = []", "SEEN = []\nSEEN.append(1)"),
    ("SEEN = []", "len(SEEN)\nSEEN.index(1)"),
    ("", "seen = []\nseen.append(1)\nstate = {}\nstate['x'] = 1"),
    ("", "seen = []\nasync def inner(): seen.append(1)\nawait inner()"),
    ("", "class Local:\n    def __init__(self): self.x = 1\n    def f(self): self.x = 2\nLocal().f()"),
    ("import time", "def unused(): time.time()"),
    ("import time", "await ctx.step(lambda: time.time())"),
    ("import time\ndef undo(v): time.time()", "await ctx.step(compute, undo=undo)"),
    ("from functools import partial\nimport time\ndef f(x): time.time()", "await ctx.step(partial(f, 1))"),
    ("import time\ndef retried(fn): return fn\ndef f(): time.time()", "await ctx.step(retried(f))"),
    ("import asyncio, time\ndef f(): time.time()", "await ctx.step(asyncio.to_thread, f)"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "body"), NOTHING)
def test_safe_code_raises_no_finding(check: Check, before: str, body: str) -> None:
    assert check(source(before.replace("helpers_of_mine", "shelve"), body)) == []


def test_every_rule_about_sources_has_an_example() -> None:
    shown_by_a_run = {
        "different-ask", "different-asks", "different-outcome", "different-notice",
        "different-step", "interrupted-step", "unrecordable-value", "not-suspended",
        "context-use",
    }  # fmt: skip
    assert set(FOUND) | {"self-mutation"} == set(RULES) - shown_by_a_run
