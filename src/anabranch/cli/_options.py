"""Options that several commands share: their names, help texts and environment variables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch._text import LogFormat
from anabranch.cli._option_values import headers_of, limits_of, variables_of

if TYPE_CHECKING:
    from anabranch._budget import Limits

MODEL = "ANABRANCH_MODEL"
STORE = "ANABRANCH_STORE"
ENGINE = "ANABRANCH_ENGINE"

TOKEN = "ANABRANCH_TOKEN"  # noqa: S105 - the name of a variable
WEB_TOKEN = "ANABRANCH_WEB_TOKEN"  # noqa: S105 - the name of a variable

SESSION_TTL = 1800.0
"""Seconds without a request after which a session ends."""

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
        help="Sources of tools: Python files, modules, module:attribute, URLs of MCP servers, or "
        "command:… to start one."
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
Limit: TypeAlias = Annotated[
    int, Parameter(validator=Number(gte=0), help="Maximum entries to list.")
]
Yes: TypeAlias = Annotated[
    bool, Parameter(negative=(), help="Skip the confirmation. Required without a terminal.")
]
EngineName: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--engine",
        env_var=ENGINE,
        help="Engine that gives the runs of a chat to workers. in-process (default): this process does "
        "its runs itself. dbos: DBOS in the Postgres of the --store. postgresql://…: DBOS in this "
        "Postgres. ?schema=NAME sets the schema of DBOS's tables; give each application its own.",
    ),
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


SharedMemory: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Name of a project, for --memory: all callers read its notes, and add notes with "
        'scope="project". Default: callers with different tokens share no notes.',
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
class SampleRules:
    """The rules for the samples of a call."""

    confirm_samples: Annotated[
        bool, Parameter(negative="", help="Ask you before the model answers a sample.")
    ] = False
    max_samples: Annotated[
        int | None,
        Parameter(
            name="--max-samples-per-minute",
            help="Maximum samples in a minute. The command refuses further samples.",
        ),
    ] = None
    no_samples_for: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="Tool or target for which the command refuses samples. Repeatable.",
        ),
    ] = ()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The limits of a call."""

    max_tokens: Annotated[
        int | None,
        Parameter(help="Maximum tokens of all samples in one call, prompts and replies together."),
    ] = None
    max_depth: Annotated[
        int | None, Parameter(help="Maximum depth of nested branches in one call; 0 allows none.")
    ] = None
    timeout: Annotated[
        float | None, Parameter(help="Maximum seconds of one call, including the wait for answers.")
    ] = None

    def read(self) -> Limits:
        return limits_of(self.max_tokens, self.max_depth, self.timeout)


def of_tools(limits: Limits) -> Limits:
    """Return a turn's ``limits`` for each of its tool calls, without tokens, which it counts."""
    return replace(limits, max_tokens=None)
