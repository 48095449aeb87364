"""Options that several commands share: their names, help texts and environment variables."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter
from platformdirs import user_data_path

from anabranch._terminal.exits import UsageError
from anabranch._text import LogFormat

if TYPE_CHECKING:
    from anabranch._budget import Limits

MODEL = "ANABRANCH_MODEL"
STORE = "ANABRANCH_STORE"
ENGINE = "ANABRANCH_ENGINE"

TOKEN = "ANABRANCH_TOKEN"  # noqa: S105 - the name of a variable
WEB_TOKEN = "ANABRANCH_WEB_TOKEN"  # noqa: S105 - the name of a variable

SESSION_TTL = 1800.0
"""Seconds after which a session ends that has no request in flight."""

Era: TypeAlias = Literal["auto", "modern", "handshake", "saga"]

Model: TypeAlias = Annotated[
    str | None,
    Parameter(
        env_var=MODEL,
        help="What answers samples: provider:model (anthropic:…, openai:…, ollama:…),"
        " or script:FILE.",
    ),
]
AnswersFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--answers",
        help="A JSON list of answers; no one is then asked at the terminal. Entries, taken in"
        ' order: {"accept": {…}}, {"decline": true}, {"cancel": true}, {"sample": "text"}; with'
        ' a "key", for the step of that name.',
    ),
]


AsJson: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--json", negative=(), help="Print JSON. Without a terminal, that is the default."
    ),
]
CodeVersion: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--code-version",
        env_var="ANABRANCH_CODE_VERSION",
        help="The version of the tools' code. A stored call is continued by the code that has begun"
        " it, or by code that takes the same way. By default, a digest of the files in which the"
        " tools are defined.",
    ),
]
AccessLog: TypeAlias = Annotated[
    bool,
    Parameter(help="Log each request over HTTP on stderr: who, what, the status.", negative=()),
]
LogForm: TypeAlias = Annotated[
    LogFormat,
    Parameter(
        name="--log-format",
        help="How log records are written on stderr: text, or one JSON object in each line, with the"
        " id of the call that it is about.",
    ),
]
Token: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--token", "--auth"],
        help="The bearer token for a server at a URL. Other users may see it among the processes.",
    ),
]
Headers: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--header",
        help="A header of the requests to a URL, as 'Name: value'. May be repeated.",
        negative=(),
    ),
]
Variables: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--env",
        help="A variable for the servers that command:… starts: NAME to pass it on, or NAME=value. They"
        " inherit PATH, HOME and the like, and no other. May be repeated.",
        negative=(),
    ),
]
ArgumentsJson: TypeAlias = Annotated[
    str | None,
    Parameter(name="--json", help="Arguments as a JSON object; name=value overrides it."),
]
EraOption: TypeAlias = Annotated[
    Era,
    Parameter(
        help="The protocol's era: auto negotiates, modern is 2026-07-28, handshake is up to"
        " 2025-11-25, saga is the saga methods."
    ),
]
ConfirmSamples: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--confirm-samples",
        negative="",
        help="Ask the person before the model answers a sample.",
    ),
]
MaxSamples: TypeAlias = Annotated[
    int | None,
    Parameter(
        name="--max-samples-per-minute",
        help="How many samples may be asked for in a minute; further ones are refused.",
    ),
]
NoSamplesFor: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(
        name="--no-samples-for",
        negative="",
        help="A tool, or a target, for which samples are refused; repeatable.",
    ),
]
Store: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--store",
        env_var=STORE,
        help="Where conversations are stored: sqlite:///FILE, postgresql://… or memory:; by"
        " default, a file in your data directory.",
    ),
]
Yes: TypeAlias = Annotated[
    bool, Parameter(negative=(), help="Do not ask. Without a terminal, it has to be given.")
]
EngineName: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--engine",
        env_var=ENGINE,
        help="What shares the work: in-process (the default); dbos (in the --store, a Postgres), or"
        " the postgresql://… in which DBOS has its tables, with ?schema=NAME for each of several"
        " applications there.",
    ),
]
Foldable: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--folding",
        negative=(),
        help="Offer branch_create, branch_return and branch_status: subtasks in branches with a"
        " budget and a deadline. Settings: ANABRANCH_FOLDING_MAX_DEPTH and the like, or a YAML file"
        " named in ANABRANCH_FOLDING_FILE.",
    ),
]
Remembering: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--memory",
        negative=(),
        help="Offer memory_search, memory_record and memory_feedback, and let the --model learn from"
        " branches that return with extract_memory. What is remembered is in the --store, by default"
        " a file in your data directory. No TARGET is needed then.",
    ),
]


SharedMemory: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="With --memory: the name of a project whose memories all callers share, and may record"
        ' with scope="project". Without it, callers with tokens of their own share none.',
    ),
]
ServerHeaders: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--header",
        help="A header of the requests to the server at a URL, as 'Name: value'. May be repeated.",
        negative=(),
    ),
]
ChosenTools: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--tools",
        help="A tool to offer, by name or by a pattern such as 'issues_*'. May be repeated. Default:"
        " all tools.",
        negative=(),
    ),
]
WithoutTools: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--without",
        help="A tool to leave out, by name or by a pattern. May be repeated.",
        negative=(),
    ),
]


MaxTokens: TypeAlias = Annotated[
    int | None,
    Parameter(help="Tokens that the samples of one call may use, prompts and replies together."),
]
MaxDepth: TypeAlias = Annotated[
    int | None, Parameter(help="How deeply the branches of one call may be nested; 0 for none.")
]
Timeout: TypeAlias = Annotated[
    float | None, Parameter(help="Seconds that one call may take, waiting for answers included.")
]

TurnMaxTokens: TypeAlias = Annotated[
    int | None,
    Parameter(help="Tokens of one turn: of its replies, its branches and its tools together."),
]
TurnMaxDepth: TypeAlias = Annotated[
    int | None, Parameter(help="How deeply the branches of a turn, and of a tool, may be nested.")
]
TurnTimeout: TypeAlias = Annotated[
    float | None, Parameter(help="Seconds that one branch, or one call of a tool, may take.")
]


def turn_limits_of(max_tokens: int | None, max_depth: int | None, timeout: float | None) -> Limits:
    """Return the limits that were given for turns, and for the calls of their tools.

    Raises:
        UsageError: one of them limits nothing that there is.
    """
    limits = limits_of(max_tokens, max_depth, timeout)
    if max_tokens == 0:
        raise UsageError("A turn cannot go without tokens. Give --max-tokens 1 or more.")
    return limits


def limits_of(max_tokens: int | None, max_depth: int | None, timeout: float | None) -> Limits:
    """Return the limits that were given.

    Raises:
        UsageError: one of them limits nothing that there is.
    """
    from anabranch._budget import Limits

    given = {"--max-tokens": max_tokens, "--max-depth": max_depth, "--timeout": timeout}
    for option, value in given.items():
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"{option} must be a number from 0 up, not {value:g}.")
    return Limits(max_depth=max_depth, max_tokens=max_tokens, timeout=timeout)


def variables_of(given: Iterable[str]) -> dict[str, str]:
    """Return the variables given as ``NAME``, of this process's environment, or ``NAME=value``.

    Raises:
        UsageError: one is no variable, or is not set.
    """
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
    """Return the URL given as ``--store``, or by default that of a file in the data directory."""
    if given:
        return given
    return f"sqlite:///{user_data_path('anabranch', appauthor=False) / 'anabranch.db'}"
