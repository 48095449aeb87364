"""``@tool``: name, schema and description read from a function, refused functions, and checked
arguments.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from anabranch import BranchContext, Elicitation, Limits, tool
from anabranch.errors import CapabilityError, InvalidArgumentsError, ToolError
from anabranch.testing import MockClient, run_tool


class Seat(BaseModel):
    row: int


SEAT = Elicitation("seat", Seat)


@tool
async def search(ctx: BranchContext, city: str, budget: Annotated[int, Field(ge=1)] = 500) -> str:
    """Search for flights.

    Sorted by price.
    """
    return f"{city} {budget}"


def test_name_description_and_parameters_are_the_functions() -> None:
    assert search.name == "search"
    assert search.description == "Search for flights.\n\nSorted by price."
    assert search.input_schema == {
        "title": "search_arguments",
        "type": "object",
        "properties": {
            "city": {"title": "City", "type": "string"},
            "budget": {"title": "Budget", "type": "integer", "minimum": 1, "default": 500},
        },
        "required": ["city"],
    }
    assert search.returns is str
    assert [parameter.name for parameter in search.parameters] == ["city", "budget"]
    assert repr(search) == "<tool search>"


def test_decorator_arguments_replace_name_description_and_schema() -> None:
    @tool(
        name="find",
        description="Find.",
        elicits=[SEAT],
        requires="sampling",
        limits=Limits(max_depth=3),
    )
    async def anything(ctx: BranchContext) -> None:
        """Not this."""

    assert (anything.name, anything.description) == ("find", "Find.")
    assert (anything.elicits, anything.requires) == ((SEAT,), frozenset({"sampling"}))
    assert anything.limits == Limits(max_depth=3)
    assert (search.elicits, search.requires, search.limits) == ((), frozenset(), Limits())


def test_a_function_without_a_docstring_has_no_description() -> None:
    """The library does not invent a description."""

    @tool
    async def quiet(ctx: BranchContext) -> None: ...

    assert (quiet.description, quiet.input_schema["properties"]) == ("", {})


async def test_a_tool_can_be_called_as_the_function_it_is_from_another_tool(replay: bool) -> None:
    @tool
    async def outer(ctx: BranchContext) -> str:
        return await search(ctx, "Rome", budget=3)

    assert await run_tool(outer, {}, replay=replay) == "Rome 3"


def not_async(ctx: BranchContext) -> str:
    return ""


async def yielding(ctx: BranchContext) -> AsyncIterator[str]:
    yield ""


class Shop:
    async def sell(self, ctx: BranchContext) -> str:
        return ""


async def without_context() -> str:
    return ""


async def only_keywords(*, ctx: BranchContext) -> str:
    return ""


async def wrong_first(city: str) -> str:
    return ""


async def any_arguments(ctx: BranchContext, *cities: str) -> str:
    return ""


async def any_keywords(ctx: BranchContext, **cities: str) -> str:
    return ""


async def by_position(ctx: BranchContext, city: str, /) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (not_async, "is an async function"),
        (yielding, "yields. Return one value"),
        ("sell", r"Write `@tool\(name='sell'\)`"),
        (Shop.sell, "ctx must be the first parameter"),
        (without_context, "must take a BranchContext as first parameter"),
        (only_keywords, r"first parameter\. Write `async def only_keywords\(ctx: BranchContext"),
        (wrong_first, "first parameter, not city"),
        (any_arguments, "cannot be given by name"),
        (any_keywords, r"\*\*.* cannot be given by name; declare .* In a decorator, use functools"),
        (by_position, "cannot be given by name; remove the / behind it"),
    ],
)
def test_a_function_that_is_no_tool_is_refused_when_defined(function: Any, words: str) -> None:
    """The author sees the error at import instead of at the first call."""
    with pytest.raises(TypeError, match=words):
        tool(function)


class NotData:
    """A value that no JSON can express."""


async def takes_no_data(ctx: BranchContext, city: str, database: NotData) -> None: ...


async def takes_a_function(ctx: BranchContext, city: str, then: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("function", "name"), [(takes_no_data, "database"), (takes_a_function, "then")]
)
def test_a_parameter_that_no_caller_could_give_is_named(
    function: Callable[..., Awaitable[None]], name: str
) -> None:
    """The author sees the error at import, with the names of the author's own code."""
    with pytest.raises(TypeError, match=rf"a caller cannot give \['{name}'\]"):
        tool(function)


class Row(TypedDict):
    row: int


async def takes_a_typed_dict(ctx: BranchContext, row: Row) -> int:
    return row["row"]


def test_a_typed_dict_of_typing_is_read_or_the_one_to_import_is_named() -> None:
    if sys.version_info >= (3, 12):
        assert tool(takes_a_typed_dict).validate({"row": {"row": 1}}) == {"row": {"row": 1}}
    else:
        with pytest.raises(
            TypeError, match=r"import TypedDict from typing_extensions for \['row'\]"
        ):
            tool(takes_a_typed_dict)


def test_a_tool_resolves_postponed_annotations() -> None:
    source = "from __future__ import annotations\nasync def book(ctx, seat: Seat) -> Seat: ..."
    made: dict[str, Any] = {"Seat": Seat}
    exec(source, made)  # noqa: S102
    book = tool(made["book"])
    assert book.validate({"seat": {"row": 1}}) == {"seat": Seat(row=1)}
    assert book.returns is Seat


def test_an_annotation_that_is_not_known_at_run_time_is_named() -> None:
    """``@tool`` builds the schema from the annotations when the tool is defined."""
    made: dict[str, Any] = {}
    exec("async def book(ctx, seat: 'Seet') -> None: ...", made)  # noqa: S102
    with pytest.raises(TypeError, match="an annotation names 'Seet', which is not defined"):
        tool(made["book"])


def test_an_unknown_capability_is_refused_where_the_tool_is_defined() -> None:
    """No client can have an unknown capability: the name is a typing mistake."""

    @tool(requires=["sampling"])
    async def fine(ctx: BranchContext) -> None: ...

    with pytest.raises(ValueError, match=r"\['smapling'\]; known capabilities are"):
        tool(requires=["smapling"])(fine.fn)


def test_an_elicitation_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"declares the elicitations \['seat'\] twice"):
        tool(elicits=[SEAT, Elicitation("seat", Seat)])(search.fn)


async def test_invalid_arguments_get_one_message_that_lists_every_field(replay: bool) -> None:
    entered: list[str] = []

    class Leg(BaseModel):
        to: str

    @tool(extra="forbid")
    async def book(
        ctx: BranchContext, legs: list[Leg], seats: Annotated[int, Field(ge=1)], meal: Literal["a"]
    ) -> None:
        entered.append("book")

    wrong = {"legs": [{"to": "Rome"}, {}], "seats": 0, "extra": True}
    with pytest.raises(InvalidArgumentsError) as raised:
        await run_tool(book, wrong, MockClient(), replay=replay)
    assert raised.value.problems == {
        "legs.1.to": "Field required",
        "seats": "Input should be greater than or equal to 1",
        "meal": "Field required",
        "extra": "there is no such parameter; there are: legs, seats, meal",
    }
    for field, problem in raised.value.problems.items():
        assert f"{field}: {problem}" in str(raised.value)
    assert entered == []


async def test_the_values_of_wrong_arguments_are_not_repeated() -> None:
    """An argument sent by mistake may be a secret of the user."""
    with pytest.raises(InvalidArgumentsError) as raised:
        await run_tool(search, {"city": "Rome", "budget": "hunter2"}, MockClient())
    assert "hunter2" not in str(raised.value)


async def test_arguments_arrive_in_the_declared_types(replay: bool) -> None:
    class Leg(BaseModel):
        to: str

    @tool
    async def book(ctx: BranchContext, legs: list[Leg], seats: int = 2) -> str:
        return f"{legs[0].to} for {seats}"

    assert await run_tool(book, {"legs": [{"to": "Rome"}]}, replay=replay) == "Rome for 2"


@pytest.mark.parametrize("name", ["schema", "copy", "json", "model_config", "_x", "self", "items"])
async def test_a_parameter_may_have_a_name_that_pydantic_uses_itself(name: str) -> None:
    """The author may choose any parameter name."""
    made: dict[str, Any] = {}
    exec(f"async def named(ctx, *, {name}: int = 3) -> int:\n return {name}", made)  # noqa: S102
    named = tool(made["named"])
    assert list(named.input_schema["properties"]) == [name]
    assert await run_tool(named, {name: 4}) == 4
    assert await run_tool(named, {}) == 3
    with pytest.raises(InvalidArgumentsError, match=f"{name}: Input should be a valid integer"):
        await run_tool(named, {name: "x"})


@pytest.mark.parametrize(
    ("required", "offered"),
    [
        ("sampling", {"elicitation"}),
        ("elicitation", {"sampling"}),
        ("sampling.tools", set[str]()),
        ("elicitation.url", set[str]()),
    ],
)
async def test_requirements_of_a_tool_are_checked_before_its_code_runs(
    required: str, offered: set[str], replay: bool
) -> None:
    entered: list[str] = []

    @tool(requires=[required])
    async def needy(ctx: BranchContext) -> None:
        entered.append("needy")

    with pytest.raises(CapabilityError) as raised:
        await run_tool(needy, {}, MockClient(capabilities=offered), replay=replay)
    assert raised.value.capability == required
    assert entered == []
    await run_tool(needy, {}, MockClient(), replay=replay)
    assert entered == ["needy"]


async def test_a_value_fails_the_call_and_undoes_its_steps_when_it_misses_the_annotation(
    replay: bool,
) -> None:
    undone: list[int] = []

    async def reserve() -> int:
        return 7

    async def release(row: int) -> None:
        undone.append(row)

    @tool
    async def book(ctx: BranchContext) -> Seat:
        row = await ctx.step(reserve, undo=release)
        return {"row": f"row {row}"}  # type: ignore[return-value]

    with pytest.raises(
        ToolError, match=r"does not fit its output schema: row: Input should be a"
    ) as it:
        await run_tool(book, {}, MockClient(), replay=replay)
    assert "row 7" not in str(it.value)
    assert undone == [7]
