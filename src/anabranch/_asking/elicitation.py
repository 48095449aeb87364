"""Typed questions to the user: their declaration, their forms, and the three possible results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import lru_cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from anabranch._schemas import protocol_field, with_text_choices
from anabranch._text import checked_name
from anabranch.messages import Exchange

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class _Exchanged:
    """Stores the function that makes a result's exchange, which ``repr`` does not show."""

    __slots__ = ("_make_exchange",)
    _make_exchange: Callable[[], Exchange]


@dataclass(frozen=True, slots=True)
class Accepted(_Exchanged, Generic[T]):
    """The answer of a user who accepted the question; ``content`` is the filled form.

    ``make_exchange`` is called when ``exchange`` is read, since few tools read it.
    """

    content: T
    make_exchange: InitVar[Callable[[], Exchange]] = Exchange
    action: Literal["accept"] = field(default="accept", init=False)

    def __post_init__(self, make_exchange: Callable[[], Exchange]) -> None:
        object.__setattr__(self, "_make_exchange", make_exchange)

    @property
    def exchange(self) -> Exchange:
        """The question and the answer as messages, for ``ctx.append``."""
        return self._make_exchange()


@dataclass(frozen=True, slots=True)
class Declined:
    """The user declined to answer."""

    action: Literal["decline"] = field(default="decline", init=False)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The user dismissed the question without an answer."""

    action: Literal["cancel"] = field(default="cancel", init=False)


ElicitResult: TypeAlias = Accepted[T] | Declined | Cancelled
"""The result of ``ctx.elicit``: ``Accepted``, ``Declined`` or ``Cancelled``."""


class Elicitation(Generic[M]):
    """A question that a tool can ask: a ``key``, and the pydantic model of the answer's form.

    Raises:
        TypeError: if ``model`` is not a pydantic model, or has a field that an MCP form cannot
            show; the message names the field.
        ValueError: if ``key`` is empty or contains one of ``/~#<>``.
    """

    def __init__(self, key: str, model: type[M]) -> None:
        self.key: str = checked_name(key, "key")
        self.model = model
        self.schema: dict[str, Any] = form_schema(model)

    def __repr__(self) -> str:
        return f"Elicitation({self.key!r}, {self.model.__name__})"


_AnyField: TypeAlias = (
    core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField
)


def _takes_null(schema: Any) -> bool:  # noqa: ANN401 - a schema of pydantic's
    """Return whether the field with this ``schema`` takes null, under validators or none."""
    return schema["type"] == "nullable" or ("schema" in schema and _takes_null(schema["schema"]))


class _FormSchema(GenerateJsonSchema):
    """The JSON Schema of MCP forms, without a null type: an optional field is not ``required``."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - overrides
        return False

    def handle_invalid_for_json_schema(self, schema: object, error_info: str) -> JsonSchemaValue:  # noqa: ARG002
        return {}  # _problem refuses it, with the name of the field

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        variants = super().decimal_schema(schema)["anyOf"]  # a number, or a text
        return next(each for each in variants if each["type"] == "number")

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        rendered = super().enum_schema(schema)
        if rendered.get("type") in ("integer", "number"):  # names say more to a user than numbers
            names = [member.name.replace("_", " ") for member in schema["members"]]
            rendered["enumNames"] = [name.capitalize() for name in names]
        return rendered

    def field_is_required(self, field: _AnyField, total: bool) -> bool:  # noqa: FBT001 - overrides
        return super().field_is_required(field, total) and not _takes_null(field["schema"])

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        rendered = super().default_schema(schema)
        if rendered.get("default") is None:
            rendered.pop("default", None)
        elif rendered.get("type") == "number":  # the default of a decimal is written as a text
            rendered["default"] = float(rendered["default"])
        return rendered


def form_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of the form for ``model``, or raise as :class:`Elicitation`.

    The schema has only keys that MCP 2026-07-28 allows in
    ``ElicitRequestFormParams.requestedSchema``.
    """
    try:
        return _form_schema(checked_model(model))
    except RecursionError:
        raise TypeError(f"A form is flat, and {model.__name__} refers to itself.") from None


@lru_cache(maxsize=512)
def _form_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_FormSchema)
    definitions = schema.pop("$defs", {})
    schema = _inlined(schema, definitions)  # a recursive model is a reference to itself
    if schema.get("type") != "object":
        raise TypeError(f"A form needs fields, and {model.__name__} has none; make it a BaseModel.")
    properties = {
        name: _inlined(field_schema, definitions)
        for name, field_schema in schema.get("properties", {}).items()
    }
    for name, field_schema in properties.items():
        problem = _problem(field_schema)
        if problem:
            raise TypeError(
                f"Field {name!r} of {model.__name__} {problem}. A form shows only strings,"
                " numbers, integers, booleans, enums and lists of enum values. Change the type of the"
                " field, or ask in several questions."
            )
    shown = {name: protocol_field(field_schema) for name, field_schema in properties.items()}
    form: dict[str, Any] = {"type": "object", "properties": shown}
    if required := schema.get("required"):
        form["required"] = required
    return form


def checked_model(model: object) -> type[BaseModel]:
    """Return ``model``, the class of an answer; raise ``TypeError`` if it is no pydantic model."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(
            f"An elicitation needs a pydantic model class, got {model!r}. Write ctx.elicit(Model,"
            " message), with a BaseModel of one field for each answer."
        )
    return model


def _inlined(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "").removeprefix("#/$defs/")
    if reference in definitions:
        definition = dict(definitions[reference])
        if "enum" in definition:
            definition.pop("title", None)  # the name of a class says less than that of the field
        schema = {**definition, **{key: schema[key] for key in schema if key != "$ref"}}
    if "items" in schema:
        schema = {**schema, "items": _inlined(schema["items"], definitions)}
    schema = with_text_choices(schema)
    if "items" in schema and isinstance(schema.get("default"), list):
        schema["default"] = [str(each) for each in schema["default"]]
    return schema


_SCALARS = ("string", "number", "integer", "boolean")


def _problem(schema: dict[str, Any]) -> str | None:
    """Return the problem of a field that a form cannot show, or ``None``."""
    kind = schema.get("type")
    if kind == "array":
        items: dict[str, Any] = schema.get("items", {})
        choices = items.get("anyOf", items.get("oneOf", ()))  # titled values may have no type
        titled = bool(choices) and all("const" in each for each in choices)
        if titled or (items.get("type") == "string" and "enum" in items):
            return None
        return "is a list of something other than enum values"
    if kind not in _SCALARS:
        return f"renders as {kind or ' or '.join(schema) or 'anything'}"
    return None


def describe(error: ValidationError, whole: str = "answer") -> str:
    """Return one line that names each field, or the ``whole``, with its problem, without the input."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or whole}: {reason_of(problem)}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    )


def describe_entry(error: ValidationError, name: str) -> str:
    """Return the first problem in a list of entries: ``answer 2, field 'key': …``."""
    problem = error.errors(include_url=False, include_input=False)[0]
    number, *field = problem["loc"]
    where = f", field {'.'.join(map(str, field))!r}" if field else ""
    return f"{name} {int(number) + 1}{where}: {reason_of(problem)}."


def reason_of(problem: ErrorDetails) -> str:
    """Return the reason why a value does not fit; the text of an author's validator stays unchanged."""
    match problem["type"]:
        case "value_error" | "assertion_error":
            return problem["msg"].partition(", ")[2]
        case "extra_forbidden":
            return "there is no such field"
        case _:
            return problem["msg"]
