"""One example of each public error, with the facts and the advice that its message must state."""

from anabranch.errors import (
    AnabranchError,
    BranchDepthError,
    BranchTimeoutError,
    BranchTokenError,
    CallExpiredError,
    CapabilityError,
    ConcurrentElicitError,
    ContextUseError,
    ConverseRoundsError,
    ElicitInBranchError,
    ElicitValidationError,
    IdempotencyKeyError,
    InvalidArgumentsError,
    InvalidTokenError,
    NonDeterminismError,
    NoProgressError,
    OtherVersionError,
    SampleValidationError,
    SerializationError,
    StepFailed,
    SuspensionError,
    ToolError,
    UnknownCallError,
    UnreachableError,
    UnsupportedRuntimeError,
)

EXAMPLES: list[tuple[AnabranchError, str, str]] = [
    # Each entry: the error, the fact that its message states, and the advice that its message
    # gives.
    (ToolError("no seats left"), "no seats left", ""),
    (
        InvalidArgumentsError("book", {"seat": "Field required", "row": "too big"}),
        "seat: Field required; row: too big",
        "Correct them",
    ),
    (CapabilityError("elicitation"), "needs 'elicitation'", "a client that supports this"),
    (CapabilityError("sampling.tools"), "needs 'sampling.tools'", "its own sampler"),
    (BranchDepthError(3, 2), "depth 3 would exceed max_depth=2", "Nest fewer"),
    (BranchTokenError("a/b#1", 12, 10), "'a/b#1' needs 12 tokens but may use 10", "Shorten"),
    (BranchTimeoutError("a/b#1", 2.5), "'a/b#1' was stopped after its timeout of 2.5 s", "raise"),
    (StepFailed("a/x.1", "OSError", "secret"), "'a/x.1' failed with OSError", "Catch StepFailed"),
    (SampleValidationError("a/s.1", 3, "n: required", "?"), "after 3 attempts: n", "Simplify"),
    (ElicitValidationError("a/e.1", 4, "n: required"), "after 4 attempts: n: required", "answer"),
    (ConverseRoundsError("a", 10), "calls tools after 10 requests in 'a'", "max_rounds"),
    (ConcurrentElicitError("a/e.2", "a/e.1"), "'a/e.2' was asked while 'a/e.1'", "Await"),
    (ElicitInBranchError("a/b#1/e.1", 1), "asked at depth 1", "Return from the branch"),
    (SerializationError("a/x.1", "socket"), "'a/x.1' is of type socket", "Return plain JSON"),
    (SerializationError("a/x.1", "float", "nan"), "journal: nan", "Return plain JSON"),
    (
        ContextUseError("ctx", "in its tasks", "inside a step's function", "Ask before the step."),
        "ctx was used inside a step's function",
        "Ask before the step",
    ),
    (
        ContextUseError("a/~b#1/ask", "in its tasks", "in the order of a set", "Give it a key=."),
        "ctx was used at 'a/~b#1/ask', in the order of a set",
        "Give it a key",
    ),
    (NonDeterminismError("a/x.1", "A", "B"), "'a/x.1': recorded A, now B", "ctx.random"),
    (SuspensionError(["a/x.1"], "it went on"), "at 'a/x.1': it went on", "Do not catch"),
    (
        NoProgressError(["a/x.1"], "x.py:3", 3),
        "3 rounds in a row were cut off at x.py:3",
        "ctx.step",
    ),
    (
        UnsupportedRuntimeError("CPython 9", ["a", "b"]),
        "cannot run on CPython 9: a; b",
        "Run it in",
    ),
    (InvalidTokenError(), "Invalid or expired token", "Call the tool again"),
    (CallExpiredError("call_1"), "call 'call_1' has expired", "Call the tool again"),
    (IdempotencyKeyError("it is another's; take a new one"), "cannot be used", "take a new one"),
    (
        OtherVersionError("call_1", "v7"),
        "Version 'v7' of the code started",
        "send the same request again",
    ),
    (
        UnreachableError(
            "This server cannot reach its store just now. Nothing is lost; send the same request"
            " again."
        ),
        "cannot reach its store",
        "send the same request again",
    ),
    (UnknownCallError("call_1"), "no call 'call_1'", "was deleted"),
]
