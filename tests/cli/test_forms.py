"""Forms, filled in by typing as a user would."""

from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from anabranch import AnswerError
from anabranch._asking import form_schema
from anabranch._terminal import DismissedError, ask_consent, ask_form, ask_text, on_interrupt
from anabranch.messages import ElicitRequest
from tests.cli.typist import CTRL_C, CTRL_D, DOWN, ENTER, ESCAPE, SPACE, UP, answering, fill, typing

WIPE, BACKSPACE = "\x15", "\x7f"
MANY = [f"c{number}" for number in range(20)]


async def fill_field(field: dict[str, Any], keys: str, *, required: bool = True) -> object:
    """Fill a form of one field; return its value, or `...` if the field was left out."""
    names = ["x"] if required else []
    reply = await fill({"type": "object", "properties": {"x": field}, "required": names}, keys)
    assert reply.action == "accept"
    return (reply.content or {}).get("x", ...)


@pytest.mark.parametrize(
    ("field", "keys", "value"),
    [
        ({"type": "string"}, "hello" + ENTER, "hello"),
        ({"type": "string"}, ENTER, ""),
        ({"type": "string", "default": "yes"}, ENTER, "yes"),
        ({"type": "string", "default": "yes"}, WIPE + "no" + ENTER, "no"),
        ({"type": "string", "minLength": 2}, "a" + ENTER + "b" + ENTER, "ab"),
        ({"type": "string", "maxLength": 1}, "ab" + ENTER + "\x7f" + ENTER, "a"),
        ({"type": "string", "pattern": "^a"}, "b" + ENTER + WIPE + "ab" + ENTER, "ab"),
        ({"type": "string", "format": "email"}, "a" + ENTER + "@b" + ENTER, "a@b"),
        ({"type": "string", "format": "uri"}, "a" + ENTER + ":b" + ENTER, "a:b"),
        ({"type": "string", "format": "date"}, "2026-02-3" + ENTER + "\x7f03" + ENTER, "2026-02-03"),
        ({"type": "string", "format": "date-time"}, "x" + ENTER + WIPE + "2026-02-03T04:05Z" + ENTER, "2026-02-03T04:05Z"),
        ({"type": "string", "format": "later"}, "x" + ENTER, "x"),
        ({"type": "integer", "minimum": 3}, "2" + ENTER + "2" + ENTER, 22),
        ({"type": "integer"}, "1.5" + ENTER + WIPE + "15" + ENTER, 15),
        ({"type": "integer", "default": 0}, ENTER, 0),
        ({"type": "number", "maximum": 1}, "2" + ENTER + WIPE + "0.5" + ENTER, 0.5),
        ({"type": "boolean"}, "y" + ENTER, True),
        ({"type": "boolean"}, "Yes" + ENTER, True),
        ({"type": "boolean"}, "maybe" + ENTER + WIPE + "no" + ENTER, False),
        ({"type": "boolean", "default": True}, "maybe" + ENTER + WIPE + "n" + ENTER, False),
        ({"type": "boolean"}, ENTER, False),
        ({"type": "boolean", "default": True}, ENTER, True),
        ({"type": "string", "enum": ["a", "b"]}, DOWN + ENTER, "b"),
        ({"type": "string", "enum": ["a", "b"], "default": "b"}, ENTER, "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, ENTER, "a"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, DOWN + ENTER, "b"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, DOWN + SPACE + ENTER, ["b"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a"}]}}, ENTER, []),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["b"]}, ENTER, ["b"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1}, ENTER + SPACE + ENTER, ["a"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, "a" + ENTER + SPACE + ENTER, ["b"]),
    ],
)  # fmt: skip
async def test_fields_take_fitting_values(field: dict[str, Any], keys: str, value: object) -> None:
    assert await fill_field(field, keys) == value


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        ({"type": "string"}, ENTER),
        ({"type": "string", "minLength": 2}, ENTER),
        ({"type": "integer"}, ENTER),
        ({"type": "boolean"}, DOWN + DOWN + ENTER),
        ({"type": "string", "enum": ["a", "b"]}, UP + ENTER),
    ],
)
async def test_an_optional_field_can_be_left_out(field: dict[str, Any], keys: str) -> None:
    assert await fill_field(field, keys, required=False) is ...


async def test_keys_typed_before_a_yes_or_no_do_not_answer_it() -> None:
    schema = {"properties": {"name": {"type": "string"}, "ok": {"type": "boolean"}}}
    request = ElicitRequest(message="?", requested_schema=schema)
    with answering(("name", "ann" + ENTER + ENTER + "y" + ENTER), ("ok", UP + ENTER)):
        reply = await ask_form(request)
    assert reply.content == {
        "name": "ann"
    }  # up from the first choice is the last one, which leaves the field out


async def test_an_optional_yes_or_no_without_a_default_can_be_answered() -> None:
    assert await fill_field({"type": "boolean"}, DOWN + ENTER, required=False) is False


async def test_every_form_that_the_library_makes_can_be_filled() -> None:
    class Everything(BaseModel):
        name: str = Field(min_length=1)
        age: int = Field(ge=0, le=150)
        weight: float | None = None
        size: Literal["s", "m"] = "m"
        extras: list[Literal["ham", "egg"]] = []
        vegan: bool

    schema = form_schema(Everything)
    keys = ["ann", ENTER, "7", ENTER, ENTER, UP, ENTER, SPACE, ENTER]
    with answering(("name", "".join(keys)), ("vegan", "y" + ENTER)):
        reply = await ask_form(ElicitRequest(message="?", requested_schema=schema))
    assert reply.content == {"name": "ann", "age": 7, "size": "s", "extras": ["ham"], "vegan": True}


ANY_FIELD = pytest.mark.parametrize(
    "field",
    [
        {"type": "string"},
        {"type": "boolean"},
        {"type": "string", "enum": ["a"]},
        {"type": "array", "items": {"enum": ["a"]}},
        {"type": "array", "items": {"enum": MANY}},
    ],
    ids=["text", "boolean", "choice", "choices", "filtered"],
)


@pytest.mark.parametrize(("keys", "action"), [(ESCAPE, "cancel"), (CTRL_D, "decline")])
@ANY_FIELD
async def test_every_field_can_be_left(field: dict[str, Any], keys: str, action: str) -> None:
    reply = await fill({"properties": {"x": field}, "required": ["x"]}, keys)
    assert (reply.action, reply.content) == (action, None)


@ANY_FIELD
async def test_ctrl_c_in_any_field_interrupts_as_elsewhere(field: dict[str, Any]) -> None:
    with anyio.CancelScope() as scope, on_interrupt(scope.cancel):
        await fill({"properties": {"x": field}, "required": ["x"]}, CTRL_C)
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("typed", "value"),
    [("17", "c17"), ("C3" + ENTER, "c3"), ("zz" + BACKSPACE * 2 + "9", "c9"), (DOWN, "c1")],
)
async def test_typing_filters_many_choices(typed: str, value: str) -> None:
    assert await fill_field({"type": "string", "enum": MANY}, typed + ENTER) == value


async def test_many_choices_of_which_several_may_be_taken_are_filtered_too() -> None:
    field = {"type": "array", "items": {"enum": MANY}}
    keys = "17" + SPACE + BACKSPACE * 2 + "j" + BACKSPACE + "c4" + SPACE + ENTER
    assert await fill_field(field, keys) == ["c4", "c17"]


async def test_text_typed_before_leaving_is_not_returned() -> None:
    text = {"type": "string"}
    reply = await fill({"properties": {"x": text, "y": text}}, "secret" + ENTER + CTRL_D)
    assert (reply.action, reply.content) == ("decline", None)


@pytest.mark.parametrize(("keys", "action"), [("y" + ENTER, "accept"), (ENTER, "decline")])
async def test_a_form_without_fields_is_a_question_of_yes_or_no(keys: str, action: str) -> None:
    assert (await fill({"type": "object", "properties": {}}, keys)).action == action


@pytest.mark.parametrize(
    ("keys", "action"),
    [
        ("y" + ENTER, "accept"),
        (" YES " + ENTER, "accept"),
        ("n" + ENTER, "decline"),
        ("yep" + ENTER + WIPE + ENTER, "decline"),
        (ENTER, "decline"),
        ("y" + ESCAPE, "cancel"),
    ],
)
async def test_consent_is_given_by_y_or_yes_alone(keys: str, action: str) -> None:
    assert (await typing(keys, ask_consent)).action == action


async def test_a_line_of_text_is_asked_for() -> None:
    assert await typing("hm" + ENTER, lambda: ask_text("say:")) == "hm"
    with pytest.raises(DismissedError):
        await typing(ESCAPE, lambda: ask_text("say:"))


async def test_a_form_that_is_none_is_an_error_for_the_server() -> None:
    with pytest.raises(AnswerError, match=r"cannot show the form: properties\.x\.type"):
        await fill({"properties": {"x": {"type": "object"}}}, "")
