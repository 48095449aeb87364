"""The parameters of a tool: read from its function, described as JSON Schema, and used to validate.

Arguments that do not fit are read again for their plain meaning. Unknown arguments are ignored,
because hosts add some, unless the author forbids them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import ErrorDetails, to_json

from anabranch._asking import reason_of
from anabranch._engine import EXIT_AS_ERROR, Codec, drawn_codec, repeatable
from anabranch._schemas import as_meant
from anabranch._text import encodable, number_problem
from anabranch.errors import InvalidArgumentsError


class _Read(dict[str, Any]):
    """Validated arguments.

    ``given`` are the arguments of the caller, if defaults may differ from round to round: a repeated
    request with the same arguments would otherwise look like another request.
    """

    given: dict[str, Any] | None = None


class Parameters:
    """The parameters of the tool ``tool_name``, without those that the library passes, ``skip``.

    ``drawn`` has the codecs of the arguments whose defaults may differ from round to round.
    """

    def __init__(
        self,
        tool_name: str,
        function: Callable[..., Any],
        skip: Iterable[str],
        extra: Literal["ignore", "forbid"] = "ignore",
    ) -> None:
        if extra not in ("ignore", "forbid"):
            raise ValueError(
                f'Tool {tool_name!r}: extra={extra!r} is neither "ignore" nor "forbid"'
            )
        self._tool_name = tool_name
        self.declared: tuple[inspect.Parameter, ...] = tuple(
            _parameters(tool_name, function, frozenset(skip))
        )
        self._fields = {parameter.name: _field_name(parameter.name) for parameter in self.declared}
        fields: dict[str, Any] = {
            self._fields[parameter.name]: _field(parameter) for parameter in self.declared
        }
        config = ConfigDict(extra=extra, arbitrary_types_allowed=False)
        try:
            self._model = create_model(f"{tool_name}_arguments", __config__=config, **fields)
            self.schema: dict[str, Any] = self._model.model_json_schema()
            self._validated: Callable[[dict[str, Any]], BaseModel] = repeatable(
                self._model.__pydantic_core_schema__, self._model.__pydantic_validator__
            ).validate_python
        except PydanticUserError as problem:
            wrong = [parameter.name for parameter in self.declared if _cannot_be_given(parameter)]
            if wrong == ["ctx"]:
                raise TypeError(
                    f"Tool {tool_name!r}: ctx must be the first parameter. A method begins"
                    " with self: write a HandoffTool in its place, or a function inside a function."
                ) from problem
            if problem.code == "typed-dict-version":
                raise TypeError(
                    f"Tool {tool_name!r}: import TypedDict from typing_extensions for {wrong}; before"
                    " Python 3.12, pydantic cannot read the TypedDict of typing."
                ) from problem
            raise TypeError(
                f"Tool {tool_name!r}: a caller cannot give {wrong}, since JSON has no such type."
                " Take plain data, a pydantic model or a dataclass."
            ) from problem

        self.drawn: dict[str, Codec] = {
            parameter.name: Codec(TypeAdapter(parameter.annotation))
            for parameter in self.declared
            if drawn_codec(TypeAdapter(create_model("one", one=_field(parameter)))) is not None
        }

    @EXIT_AS_ERROR
    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
            problem = "They must be a mapping of names to values; read JSON text with json.loads"
            raise InvalidArgumentsError(self._tool_name, {"arguments": problem})
        problems = {
            name: problem
            for name, value in arguments.items()
            if (problem := number_problem(value)) is not None
        }
        if problems:
            raise InvalidArgumentsError(self._tool_name, problems)
        try:
            model = self._read(dict(arguments))
        except ValidationError as error:
            problems = {
                ".".join(map(str, problem["loc"])) or "arguments": self._in_words(problem)
                for problem in error.errors(include_url=False, include_input=False)
            }
            raise InvalidArgumentsError(self._tool_name, problems) from error
        read = _Read((name, getattr(model, field)) for name, field in self._fields.items())
        if self.drawn:
            read.given = dict(arguments)
        return read

    def _read(self, given: dict[str, Any]) -> BaseModel:
        """Return the arguments; if they do not fit, convert values whose meaning is clear."""
        try:
            return self._validated(given)
        except ValidationError as error:
            meant, left_out = as_meant(given, error.errors(include_url=False))
            if meant == given:
                raise
            try:
                return self._validated(meant)
            except ValidationError as second:
                missing = (
                    each["loc"] for each in second.errors(include_url=False, include_input=False)
                )
                if left_out.isdisjoint(missing):
                    raise
            raise

    def _in_words(self, problem: ErrorDetails) -> str:
        if problem["type"] != "extra_forbidden" or len(problem["loc"]) != 1:
            return reason_of(problem)
        known = ", ".join(each.name for each in self.declared) or "none"
        return f"there is no such parameter; there are: {known}"

    @staticmethod
    @EXIT_AS_ERROR
    def to_json(arguments: Mapping[str, Any]) -> str:
        given = arguments.given if isinstance(arguments, _Read) else None
        shown = dict(arguments) if given is None else given
        return to_json(encodable(shown), by_alias=True).decode()


def _field_name(parameter: str) -> str:
    """Return the name of the model's field, changed if pydantic uses the name itself."""
    taken = hasattr(BaseModel, parameter) or parameter.startswith(("_", "model_"))
    return f"parameter_{parameter}" if taken else parameter


def _field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    annotation, default = parameter.annotation, parameter.default
    if _field_name(parameter.name) != parameter.name:
        annotation = Annotated[annotation, Field(alias=parameter.name)]
    return annotation, ... if default is parameter.empty else default


def _cannot_be_given(parameter: inspect.Parameter) -> bool:
    try:
        TypeAdapter(parameter.annotation).json_schema()
    except PydanticUserError:
        return True
    return False


def hints_of(tool_name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of ``function``, with names resolved."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as problem:
        raise TypeError(
            f"Tool {tool_name!r}: an annotation names {problem.name!r}, which is not defined where"
            " the function is. Define or import it at the top of the module, at run time."
        ) from problem


def _parameters(
    tool_name: str, function: Callable[..., Any], skip: frozenset[str]
) -> Iterable[inspect.Parameter]:
    hints = hints_of(tool_name, function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in skip:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            remedy = (
                "remove the / behind it."
                if parameter.kind is parameter.POSITIONAL_ONLY
                else "declare each parameter, so that it has a place in the schema. In a decorator, use"
                " functools.wraps."
            )
            raise TypeError(
                f"Tool {tool_name!r}: parameter {parameter} cannot be given by name; {remedy}"
            )
        yield parameter.replace(
            annotation=hints.get(parameter.name, Any), kind=parameter.KEYWORD_ONLY
        )
