"""Tables of calls that are not safe to replay (clocks, randomness, input and output), by name.

A method of an instance is named after its class: ``httpx.AsyncClient.get``.
"""

from __future__ import annotations

import ast
import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXACT: dict[str, frozenset[str]] = {
    "clock": _words("""
        time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter
        time.perf_counter_ns time.process_time time.process_time_ns time.thread_time
        datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today
        asyncio.get_running_loop.time asyncio.get_event_loop.time anyio.current_time
        pandas.Timestamp.now pandas.Timestamp.today pandas.Timestamp.utcnow
        pendulum.now pendulum.today arrow.now arrow.utcnow
        django.utils.timezone.now django.utils.timezone.localtime
    """),
    "randomness": _words("""
        uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 os.urandom os.getrandom
        secrets.choice secrets.randbelow secrets.randbits secrets.token_bytes secrets.token_hex
        secrets.token_urlsafe
    """),
    "process-identity": _words("""
        builtins.hash builtins.id os.getpid os.getppid threading.get_ident
        threading.get_native_id uuid.getnode socket.gethostname platform.node
    """),
    "console-output": _words("""
        builtins.print pprint.pprint pprint.pp rich.print sys.stdout.write sys.stderr.write
        sys.stdout.writelines sys.stderr.writelines
    """),
    "console-input": _words("""
        builtins.input getpass.getpass sys.stdin.read sys.stdin.readline sys.stdin.readlines
    """),
    "subprocess": _words("""
        subprocess.run subprocess.Popen subprocess.call subprocess.check_call
        subprocess.check_output subprocess.getoutput subprocess.getstatusoutput
        os.system os.popen os.fork os.kill os.startfile
        asyncio.create_subprocess_exec asyncio.create_subprocess_shell
        anyio.run_process anyio.open_process
    """),
    "network": _words("""
        urllib.request.urlopen urllib.request.urlretrieve socket.create_connection
        socket.create_server socket.getaddrinfo socket.gethostbyname socket.gethostbyaddr
        asyncio.open_connection asyncio.start_server anyio.connect_tcp anyio.connect_unix
        smtplib.SMTP smtplib.SMTP_SSL ftplib.FTP imaplib.IMAP4 imaplib.IMAP4_SSL poplib.POP3
        websockets.connect webbrowser.open
    """),
    "file-access": _words("""
        builtins.open io.open aiofiles.open anyio.open_file glob.glob glob.iglob
        os.remove os.unlink os.rename os.renames os.replace os.mkdir os.makedirs os.rmdir
        os.removedirs os.listdir os.scandir os.walk os.stat os.open os.truncate os.symlink os.link
        os.chmod os.chown os.utime os.access os.path.exists os.path.isfile os.path.isdir
        os.path.getmtime os.path.getsize os.path.getctime
        tempfile.mkstemp tempfile.mkdtemp tempfile.NamedTemporaryFile tempfile.TemporaryFile
        tempfile.TemporaryDirectory tempfile.SpooledTemporaryFile
    """),
}

FILES = _words("""
    read_text read_bytes write_text write_bytes open unlink touch mkdir rmdir rename replace exists
    is_file is_dir is_symlink iterdir glob rglob walk stat lstat chmod symlink_to hardlink_to owner
    samefile copy copy_into move move_into readlink
""")
REQUESTS = _words("""
    get post put patch delete head options request stream send urlopen ws_connect recv connect
    fetch sendmail send_message login sendall sendto getresponse create parse
""")
DATABASE = _words("""
    connect execute executemany executescript exec commit rollback flush scalar scalars stream
    stream_scalars run_sync fetchone fetchall fetchmany fetchrow fetchval fetch begin one first all
    insert_one insert_many update_one update_many delete_one delete_many replace_one find find_one
    aggregate count_documents hget hset lpush rpush publish incr expire
""")
SESSION = DATABASE | _words("add add_all merge delete get refresh query")

# In these packages the last part of the name decides; their other functions are pure.
VERBS: list[tuple[str, frozenset[str], frozenset[str]]] = [
    ("file-access", _words("pathlib anyio.Path"), FILES),
    (
        "file-access",
        _words("shutil"),
        _words("copy copy2 copyfile copymode copystat copytree move rmtree make_archive chown"
               " unpack_archive disk_usage"),
    ),
    (
        "network",
        _words("httpx httpx2 requests aiohttp urllib3 niquests http.client smtplib ftplib imaplib"
               " poplib socket.socket websockets openai anthropic"),
        REQUESTS,
    ),
    (
        "network",
        _words("mcp.Client mcp.ClientSession mcp.client fastmcp.Client fastmcp.client"),
        _words("call_tool list_tools read_resource list_resources list_resource_templates get_prompt"
               " list_prompts complete ping send_ping send_request"),
    ),
    (
        "database",
        _words("sqlite3 aiosqlite psycopg psycopg2 psycopg_pool asyncpg pymysql aiomysql MySQLdb"
               " mysql.connector pyodbc oracledb duckdb pymongo motor redis databases"),
        DATABASE | {"get", "set", "delete"},
    ),
    (
        "database",
        _words("sqlalchemy.orm sqlalchemy.ext.asyncio sqlalchemy.engine sqlmodel.Session"
               " sqlalchemy.create_engine sqlalchemy.Engine sqlalchemy.Connection"),
        SESSION,
    ),
]  # fmt: skip

UNDETERMINED: dict[str, tuple[str, int]] = {
    "random.Random": ("randomness", 1),
    "numpy.random.default_rng": ("randomness", 1),
    "numpy.random.RandomState": ("randomness", 1),
    "time.localtime": ("clock", 1),
    "time.gmtime": ("clock", 1),
    "time.ctime": ("clock", 1),
    "time.strftime": ("clock", 2),
}
"""The rule against a call with fewer arguments: a seed or a time determines the value."""
CHANCE = re.compile(r"(random\.[a-z]\w*|random\.SystemRandom\.\w+|numpy\.random\.\w+)$")
CLOUD = re.compile(r"boto3\.(client|resource)\.\w+$")
PURE = _words("""
    random.seed random.getstate random.setstate numpy.random.seed numpy.random.Generator
    numpy.random.SeedSequence numpy.random.PCG64
""")
OPENED = _words("connect begin")
"""Verbs that return a connection; any other verb returns a plain result."""
PLAIN = _words("headers cookies params Headers Cookies QueryParams")
"""Names of attributes that are plain data on any object."""

RECEIVERS = re.compile(r"(^|_)(conn|connection|cur|cursor|db|database|session|engine|tx|pool)$")
"""Usual names of databases, for objects of unknown type."""
CERTAIN = _words("""
    execute executemany executescript commit rollback fetchone fetchall fetchmany fetchrow fetchval
""")


def rule_of(name: str, call: ast.Call | None = None) -> str | None:
    """Return the rule against calling ``name``, or ``None``; the arguments of ``call`` may decide."""
    name = name.replace("()", "")
    if name in UNDETERMINED:
        rule, needed = UNDETERMINED[name]
        is_short = call is not None and len(call.args) + len(call.keywords) < needed
        return rule if is_short else None
    for rule, names in EXACT.items():
        if name in names:
            return rule
    if CHANCE.match(name) and name not in PURE:
        return "randomness"
    if CLOUD.match(name):
        return "network"
    return next((rule for rule, *table in VERBS if _is_verb(name, *table)), None)


def _is_verb(name: str, packages: frozenset[str], verbs: frozenset[str]) -> bool:
    *way, last = name.split(".")
    done = (verbs - OPENED) | PLAIN
    return (
        last in verbs
        and any(name.startswith(f"{package}.") for package in packages)
        and not any(each in done for each in way)
    )


def rule_of_unknown(function: ast.expr) -> str | None:
    if not isinstance(function, ast.Attribute) or function.attr not in CERTAIN:
        return None
    receiver = function.value
    name = receiver.attr if isinstance(receiver, ast.Attribute) else ""
    name = receiver.id if isinstance(receiver, ast.Name) else name
    return "database" if RECEIVERS.search(name) else None
