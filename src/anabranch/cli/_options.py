"""Options that several commands share, with their help, and the values read from their texts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter
from platformdirs import user_data_path

from anabranch._terminal import UsageError
from anabranch._text import LogFormat

if TYPE_CHECKING:
    from anabranch._budget import Limits

MODEL = "ANABRANCH_MODEL"
STORE = "ANABRANCH_STORE"

TOKEN = "ANABRANCH_TOKEN"  # noqa: S105 - the name of a variable


def at_least(least: int) -> Callable[[object, float | None], None]:
    """Return the validator of a number that is finite and no less than ``least``."""

    def check(_kind: object, value: float | None) -> None:
        if value is not None and not least <= value < math.inf:
            raise ValueError(f"Give a number from {least} up.")

    return check


Era: TypeAlias = Literal["auto", "modern", "handshake", "saga"]

if TYPE_CHECKING:
    TargetName: TypeAlias = str
    """A TARGET, whose help text depends on the command."""
else:
    TargetName = str | Path
    """A shell completes files for a parameter that may be a path. The first type is the one that arrives."""
Target: TypeAlias = Annotated[
    TargetName,
    Parameter(
        help="A Python file, a module, module:attribute, the URL of a server, or command: and the "
        "command that starts a server."
    ),
]
SourceTarget: TypeAlias = Annotated[
    TargetName, Parameter(help="A Python file, a module, or module:attribute.")
]
ToolName: TypeAlias = Annotated[str | None, Parameter(help="Name of the tool. Default: all tools.")]
Arguments: TypeAlias = Annotated[
    str,
    Parameter(
        name="name=value",
        help="Arguments of the tool: text for a text parameter, JSON for any other.",
    ),
]
ChatTargets: TypeAlias = Annotated[
    TargetName,
    Parameter(
        help="Sources of tools: Python files, modules, module:attribute, URLs of MCP servers, "
        "or command:… to start a server."
    ),
]
Model: TypeAlias = Annotated[
    str | None,
    Parameter(
        env_var=MODEL,
        help="Model that answers samples: provider:model (anthropic:…, openai:…, ollama:…), or "
        "script:FILE.",
    ),
]
AnswersFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--answers",
        help='Path of a JSON list of answers, used in order instead of the terminal: {"accept": '
        '{…}}, {"decline": true}, {"cancel": true}, {"sample": "text"}. An entry with a "key"'
        " answers only the question or sample with this key.",
    ),
]


AsJson: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--json", negative=(), help="Print JSON, as the command does without a terminal."
    ),
]
CodeVersion: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--code-version",
        env_var="ANABRANCH_CODE_VERSION",
        help="Version of the tools' code. Only code of the same version, or code that repeats the "
        "recorded steps, continues a stored call. Default: a digest of the files that define "
        "the tools.",
    ),
]
AccessLog: TypeAlias = Annotated[
    bool,
    Parameter(help="Log the client, path and status of each HTTP request on stderr.", negative=()),
]
LogForm: TypeAlias = Annotated[
    LogFormat,
    Parameter(
        name="--log-format",
        help="Format of log records on stderr: text; or json, one JSON object in each line, with "
        "the id of the call.",
    ),
]
Variables: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--env",
        help="Environment variable for the servers that command:… starts: NAME passes your "
        "variable on, NAME=value sets a variable. Repeatable. Without this option, the servers "
        "inherit only a few variables, such as PATH and HOME.",
        negative=(),
    ),
]
ArgumentsJson: TypeAlias = Annotated[
    str | None,
    Parameter(name="--json", help="Arguments as a JSON object. name=value overrides an argument."),
]
EraOption: TypeAlias = Annotated[
    Era,
    Parameter(
        help="Revision or method of the call. auto: the newest revision of the server. modern: "
        "2026-07-28. handshake: up to 2025-11-25. saga: tools/callSaga."
    ),
]
Store: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--store",
        env_var=STORE,
        help="Store of conversations, calls and notes: sqlite:///FILE, postgresql://… or memory:. "
        "Default: a file in your data directory.",
    ),
]
Limit: TypeAlias = Annotated[int, Parameter(validator=at_least(0), help="Maximum entries to list.")]
Yes: TypeAlias = Annotated[
    bool, Parameter(negative=(), help="Skip the confirmation. Required without a terminal.")
]
Foldable: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--folding",
        negative=(),
        help="Offer branch_create, branch_return and branch_status: subtasks in branches with a "
        "budget and a deadline. Set their limits by variables such as "
        "ANABRANCH_FOLDING_MAX_DEPTH, or in the YAML file that ANABRANCH_FOLDING_FILE names.",
    ),
]
Remembering: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--memory",
        negative=(),
        help="Offer the tools memory_search, memory_record and memory_feedback. The --model makes notes "
        "of branches whose branch_create or branch_return sets extract_memory. The --store keeps the notes; default: a "
        "file in your data directory. No TARGET is required.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReachOptions:
    """The options with which a command reaches the server of a target."""

    token: Annotated[
        str | None,
        Parameter(
            name=["--token", "--auth"],
            help="Bearer token for a server at a URL. Other users of the machine may see the token "
            "in the list of processes.",
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        Parameter(
            help="Header of the requests to a URL, as 'Name: value'. Repeatable.", negative=()
        ),
    ] = None
    env: Variables = None

    @property
    def headers(self) -> dict[str, str]:
        return headers_of(self.token, self.header or ())

    @property
    def variables(self) -> dict[str, str]:
        return variables_of(self.env or ())


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The limits of a call."""

    max_tokens: Annotated[
        int | None,
        Parameter(
            validator=at_least(0),
            help="Maximum tokens of all samples in one call, prompts and replies together.",
        ),
    ] = None
    max_depth: Annotated[
        int | None,
        Parameter(
            validator=at_least(0),
            help="Maximum depth of nested branches in one call; 0 allows none.",
        ),
    ] = None
    timeout: Annotated[
        float | None,
        Parameter(
            validator=at_least(0),
            help="Maximum seconds of one call, including the wait for answers.",
        ),
    ] = None

    def read(self) -> Limits:
        from anabranch._budget import Limits

        return Limits(self.max_depth, self.max_tokens, self.timeout)


SHORTEST = 16
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.~+/-]+=*")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def read_tokens(text: str | None) -> tuple[str, ...]:
    tokens = tuple(each for each in (text or "").split(",") if each)
    for each in tokens:
        if len(each) < SHORTEST:
            raise UsageError(
                f"A token has at least {SHORTEST} characters. Make one: openssl rand -hex 32"
            )
        if not _TOKEN.fullmatch(each):
            raise UsageError("A token consists of letters, digits and -._~+/ (and = at its end).")
    return tokens


def headers_of(token: str | None, lines: Iterable[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name) and value.isprintable() and value.isascii()):
            raise UsageError(f"{name!r} is not a header. Write --header 'Name: value'.")
        headers[name] = value.strip()
    if token is not None:
        (only,) = read_tokens(token) or ("",)
        headers["Authorization"] = f"Bearer {only}"
    return headers


def variables_of(given: Iterable[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or "\0" in each:
            raise UsageError("--env takes the name of a variable, or NAME=value.")
        if not equals and name not in os.environ:
            raise UsageError(
                f"The variable {name} of --env is not set. Set it, or give {name}=value."
            )
        variables[name] = value if equals else os.environ[name]
    return variables


def store_url(given: str | None) -> str:
    if given:
        return given
    return f"sqlite:///{data_folder() / 'anabranch.db'}"


def data_folder() -> Path:
    return user_data_path("anabranch", appauthor=False)
