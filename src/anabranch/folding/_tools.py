"""The tools by which any agent, for example over MCP, does subtasks in branches.

A host shows its model any context, so only tokens of these tools and reported tokens count.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field

from anabranch.folding._admission import shown_name
from anabranch.folding._branch_store import Branch, Status
from anabranch.folding._memory import InjectedItem
from anabranch.folding._service import BranchService
from anabranch.tool import BranchContext, Tool, ToolAnnotations, caller_of, tool

SessionId = Annotated[
    str | None, Field(description="The session_id that the first branch_create has returned.")
]
OneBranch = Annotated[
    str | None,
    Field(description="The branch; by default, the innermost active one of the session."),
]


class BranchCreated(BaseModel):
    """The result of ``branch_create``: a new branch, with its budget and its time."""

    branch_id: str
    session_id: str
    injected_context: list[InjectedItem]
    budget_allocated: int
    parent_budget_remaining: int | None
    depth: int


class BranchReturned(BaseModel):
    """The result of ``branch_return``: the end of a branch."""

    success: bool
    tokens_used: int
    memory_queued: bool
    branch_id: str
    message: str


class BranchRecord(BaseModel):
    """The present record of a branch; ``status`` is ``none`` without an active branch."""

    id: str | None = None
    branch_id: str | None = None
    session_id: str | None = None
    parent_id: str | None = None
    depth: int = 0
    description: str = ""
    prompt: str = ""
    budget_total: int = 0
    budget_used: int = 0
    budget_reserved: int = 0
    budget_remaining: int = 0
    timeout_seconds: float = 0
    status: Status | Literal["none"] = "none"
    result: str | None = None
    error: str | None = None
    injected_memories: list[str] = []
    created_at: str | None = None
    completed_at: str | None = None
    warning: str | None = None

    @classmethod
    def of(cls, branch: Branch) -> Self:
        same = {name: getattr(branch, name) for name in _SAME}
        return cls(
            **same,
            branch_id=branch.id,
            session_id=shown_name(branch.session_id),
            injected_memories=list(branch.injected_memories),
            created_at=_time(branch.created_at),
            completed_at=_time(branch.completed_at),
            warning=warning_of(branch),
        )


_SAME = (
    "id", "parent_id", "depth", "description", "prompt", "budget_total",
    "budget_used", "budget_reserved", "budget_remaining", "timeout_seconds", "status", "result",
    "error",
)  # fmt: skip


def warning_of(branch: Branch) -> str | None:
    if not (branch.is_open and branch.warned):
        return None
    used = f"{branch.budget_used} of {branch.budget_total} tokens are used"
    return f"{used}: finish, and call branch_return."


def folding_tools(branches: BranchService) -> list[Tool[Any]]:
    """Return the tools by which an agent creates, closes and inspects branches."""

    @tool(annotations=ToolAnnotations(read_only=False, destructive=False, open_world=False))
    async def branch_create(  # noqa: PLR0913 - its parameters are the tool's
        ctx: BranchContext,
        description: Annotated[str, Field(description="The subtask, in a sentence.")],
        prompt: Annotated[str, Field(description="The instructions for the subtask.")],
        *,
        budget: Annotated[int | None, Field(description="Tokens for the branch.")] = None,
        inject_memories: Annotated[
            bool, Field(description="Return lessons from earlier work on such subtasks.")
        ] = True,
        timeout_seconds: Annotated[
            float | None, Field(description="Seconds for the branch.")
        ] = None,
        parent_branch_id: Annotated[
            str | None,
            Field(
                description="The enclosing branch, or root; by default, the innermost active branch"
                " of the session."
            ),
        ] = None,
        session_id: SessionId = None,
        extract_memory: Annotated[
            bool, Field(description="Let later subtasks learn from this one, however it ends.")
        ] = False,
    ) -> BranchCreated:
        """Begin a subtask in a separate branch, within a budget of tokens and a time.

        Work on it, then call branch_return with its conclusion: only that message leaves the
        branch.
        """
        created = await branches.of(caller_of(ctx)).create(
            description,
            prompt,
            budget=budget,
            inject_memories=inject_memories,
            timeout_seconds=timeout_seconds,
            parent_branch_id=parent_branch_id,
            session_id=session_id,
            extract_memory=extract_memory,
        )
        branch = created.branch
        return BranchCreated(
            branch_id=branch.id,
            session_id=shown_name(branch.session_id),
            injected_context=[*created.injected],
            budget_allocated=branch.budget_total,
            parent_budget_remaining=created.parent_budget_remaining,
            depth=branch.depth,
        )

    @tool(annotations=ToolAnnotations(read_only=False, destructive=False, open_world=False))
    async def branch_return(
        ctx: BranchContext,
        message: Annotated[
            str,
            Field(
                description="The conclusion: the outcome, what was changed, insights, and open"
                " issues."
            ),
        ],
        *,
        extract_memory: Annotated[
            bool, Field(description="Let later subtasks learn from this one.")
        ] = False,
        branch_id: OneBranch = None,
        session_id: SessionId = None,
    ) -> BranchReturned:
        """End a branch with the message that goes back to its parent.

        Open branches inside it are ended first.
        """
        returned = await branches.of(caller_of(ctx)).complete(
            message, branch_id=branch_id, session_id=session_id, extract_memory=extract_memory
        )
        branch = returned.branch
        return BranchReturned(
            success=True,
            tokens_used=branch.budget_used,
            memory_queued=returned.memory_queued,
            branch_id=branch.id,
            message=branch.result or "",
        )

    @tool(annotations=ToolAnnotations(read_only=True))
    async def branch_status(
        ctx: BranchContext, branch_id: OneBranch = None, session_id: SessionId = None
    ) -> BranchRecord:
        """Show a branch: its status, its used budget, and its result."""
        found = await branches.of(caller_of(ctx)).status(branch_id=branch_id, session_id=session_id)
        return BranchRecord(session_id=session_id) if found is None else BranchRecord.of(found)

    @tool(annotations=ToolAnnotations(read_only=False, destructive=False, open_world=False))
    async def branch_report(
        ctx: BranchContext,
        tokens: Annotated[int, Field(description="Tokens used in the branch since the last time.")],
        partial: Annotated[
            str | None,
            Field(description="The result so far, in case the branch is forced to return."),
        ] = None,
        branch_id: OneBranch = None,
        session_id: SessionId = None,
    ) -> BranchRecord:
        """Report the tokens that a branch has used, and its result so far.

        At 80 % of its budget the record has a warning; at 100 % the branch is ended with the result
        so far.
        """
        return BranchRecord.of(
            await branches.of(caller_of(ctx)).charge(
                tokens, branch_id=branch_id, session_id=session_id, partial=partial
            )
        )

    _show(branch_create, "budget", branches.settings.default_budget, branches.settings.max_budget)
    times = branches.settings.default_timeout_seconds, branches.settings.max_timeout_seconds
    _show(branch_create, "timeout_seconds", *times)
    return [branch_create, branch_return, branch_status, branch_report]


def _show(shown: Tool[Any], name: str, default: float, most: float) -> None:
    schema = shown.input_schema["properties"][name]
    schema["default"] = default
    schema["description"] += f" At most {most:g}; by default {default:g}."


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
