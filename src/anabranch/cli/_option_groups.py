"""Groups of options, which several commands share, or which worker processes unpickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch.cli._options import (
    STORE,
    CodeVersion,
    Foldable,
    Model,
    Remembering,
    Store,
    Variables,
    at_least,
)
from anabranch.mcp import GRACE, HEARTBEAT, TTL, SamplerMode

if TYPE_CHECKING:
    from anabranch._budget import Limits


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """The options of an agent's turns, and of its tools."""

    max_tokens: Annotated[
        int | None,
        Parameter(
            validator=at_least(1),
            help="Maximum tokens of one turn, with its replies, branches and tools.",
        ),
    ] = None
    max_depth: Annotated[
        int | None,
        Parameter(
            validator=at_least(0), help="Maximum depth of nested branches in a turn, and in a call."
        ),
    ] = None
    timeout: Annotated[
        float | None,
        Parameter(
            validator=at_least(0), help="Maximum seconds of one branch, and of one call of a tool."
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        Parameter(
            help="Header of the requests to the server at a URL, as 'Name: value'. Repeatable.",
            negative=(),
        ),
    ] = None
    env: Variables = None
    tools: Annotated[
        list[str] | None,
        Parameter(
            help="Tool to offer, by name or by a pattern such as 'issues_*'. Repeatable. Default: all "
            "tools.",
            negative=(),
        ),
    ] = None
    without: Annotated[
        list[str] | None,
        Parameter(help="Tool to leave out, by name or by a pattern. Repeatable.", negative=()),
    ] = None
    folding: Foldable = False
    memory: Remembering = False

    def limits(self) -> Limits:
        """Return the limits of turns and of the calls of their tools."""
        from anabranch._budget import Limits

        return Limits(self.max_depth, self.max_tokens, self.timeout)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The options of the agent, which a page and its workers share."""

    model: Model = None
    store: Store = None
    turn: TurnOptions = TurnOptions()
    engine: Annotated[
        str | None,
        Parameter(
            env_var="ANABRANCH_ENGINE",
            help="Engine that assigns the runs of a chat to workers. in-process (default): each "
            "process works on the runs that it receives. dbos: DBOS in the Postgres of the "
            "--store. postgresql://…: DBOS in this Postgres. ?schema=NAME sets the schema "
            "of DBOS's tables; give each application its own.",
        ),
    ] = None
    version: CodeVersion = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Persistence:
    """The options for storing and ending calls."""

    store: Annotated[
        str | None,
        Parameter(
            env_var=STORE,
            help="Store of calls, so that effects happen once even if clients repeat requests: "
            "sqlite:///path, postgresql://…, or memory:. Default: no store.",
        ),
    ] = field(default=None, repr=False)
    ttl: Annotated[
        float, Parameter(help="Seconds that a user has to answer the questions of one round.")
    ] = TTL
    continue_calls: Annotated[
        bool,
        Parameter(
            help="With a store, offer the tool continue_call, by which a client's model "
            "continues a call that needs more rounds of questions than the client allows."
        ),
    ] = True
    grace: Annotated[
        float,
        Parameter(
            validator=at_least(0),
            help="Maximum seconds that a stopping server takes to end running calls and run their undos.",
        ),
    ] = GRACE
    max_running: Annotated[
        int | None,
        Parameter(
            validator=at_least(1),
            help="Maximum concurrent calls in one process. The server refuses further calls, and "
            "names the time after which the client may retry. Default: no limit.",
        ),
    ] = None
    version: CodeVersion = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Asking:
    """The options for asking clients."""

    sampler_mode: Annotated[
        SamplerMode,
        Parameter(
            help="own: the --model answers every sample. prefer-client: the --model answers if the "
            "client cannot sample, or refuses."
        ),
    ] = "own"
    ask_fallback: Annotated[
        bool,
        Parameter(
            help="For clients that show no questions, ask their users in the conversation: results "
            "list the questions, and the tool answer_questions takes the answers.",
            negative=(),
        ),
    ] = False
    ask_url: Annotated[
        str | None,
        Parameter(
            help="Address under which users reach this server, such as https://tools.example.org. With"
            " --ask-fallback and --store, over HTTP, results then link to pages with the forms."
        ),
    ] = None
    sagas: Annotated[
        bool, Parameter(help="Offer the methods tools/callSaga and tools/resumeSaga.")
    ] = True
    heartbeat: Annotated[
        float,
        Parameter(
            validator=at_least(0),
            help="Seconds between progress notifications to a client of MCP up to 2025-11-25 whose "
            "user has an open question, so that the client restarts its timeout. 0 sends none.",
        ),
    ] = HEARTBEAT


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class AgentTools:
    """The options for tools of this library that a server offers to agents."""

    folding: Foldable = False
    memory: Remembering = False
    shared_memory: Annotated[
        str | None,
        Parameter(
            help="Name of a project, for --memory: all callers read its notes, and add notes with "
            'scope="project". Default: callers with different tokens share no notes.'
        ),
    ] = None
