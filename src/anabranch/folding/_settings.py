"""The settings of context folding, from code, YAML or environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from anabranch._asking import reason_of
from anabranch._text import decoded, read_json
from anabranch.errors import needs_extra

ENVIRONMENT = "ANABRANCH_FOLDING_"
"""The beginning of a variable's name; the setting's name follows, in capitals."""
FILE = "ANABRANCH_FOLDING_FILE"
"""The only variable that is not a setting: it names a file of settings."""

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class FoldingSettings(BaseModel):
    """The defaults and limits of a :class:`BranchService`.

    Attributes:
        default_budget: default tokens of a branch.
        max_budget: maximum tokens that a branch may ask for.
        session_budget: tokens of all branches of a session; ``None`` for no limit.
        max_depth: maximum depth of nested branches; the first is at depth 1.
        default_timeout_seconds: default time limit of a branch.
        max_timeout_seconds: maximum time limit that a branch may ask for.
        max_concurrent_per_session: maximum open branches of one session.
        max_concurrent_per_caller: maximum open branches of one caller, if callers are
            distinguished, so that one caller cannot use up the store's limit.
        max_concurrent_per_instance: maximum open branches in one store.
        max_created_per_minute: maximum branches that one session may create in a minute.
        max_description_length: maximum characters of a description.
        max_prompt_length: maximum characters of a prompt.
        max_message_length: maximum characters of a returned message.
        injection_budget_ratio: the share of a branch's budget that notes from the memory may take.
        memory_min_confidence: the minimum confidence of a note.
        memory_max_items: maximum notes for a branch.
        memory_timeout_seconds: maximum seconds to wait for notes; then the branch starts without
            notes.
        summary_budget_ratio: the share of a budget that is reserved for a last summary.
        archive_after_seconds: seconds after which a closed branch is no longer listed with its
            session.
        delete_after_seconds: seconds after which a closed branch is deleted.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    default_budget: Count = 8_192
    max_budget: Count = 32_768
    session_budget: Count | None = 327_680
    max_depth: Count = 3
    default_timeout_seconds: Seconds = 300
    max_timeout_seconds: Seconds = 600
    max_concurrent_per_session: Count = 10
    max_concurrent_per_caller: Count = 25
    max_concurrent_per_instance: Count = 100
    max_created_per_minute: Count = 600
    max_description_length: Count = 500
    max_prompt_length: Count = 10_000
    max_message_length: Count = 50_000
    injection_budget_ratio: Ratio = 0.2
    memory_min_confidence: Ratio = 0.7
    memory_max_items: Count = 10
    memory_timeout_seconds: Seconds = 2
    summary_budget_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.15
    archive_after_seconds: Seconds = 3_600
    delete_after_seconds: Seconds = 86_400

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        pairs = [
            ("default_budget", "max_budget"),
            ("default_timeout_seconds", "max_timeout_seconds"),
            ("archive_after_seconds", "delete_after_seconds"),
        ]
        for smaller, larger in pairs:
            if getattr(self, smaller) > getattr(self, larger):
                raise ValueError(f"{smaller} is larger than {larger}; lower it, or raise the other")
        return self

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the settings from the section ``context_folding`` of a YAML or JSON text.

        Raises:
            ValueError: if the text is not YAML or JSON, or a setting is unknown or out of range;
                the message names the setting.
        """
        return cls._validated(_section(text))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the settings from environment variables; an empty variable counts as unset.

        ``ANABRANCH_FOLDING_FILE`` names a file in the format of :meth:`read`; the other variables
        override the file.

        Raises:
            ValueError: if a setting is unknown or out of range; the message names the setting.
            OSError: if the file cannot be read.
        """
        given = os.environ if environment is None else environment
        file = given.get(FILE)
        text = decoded(Path(file).read_bytes()) if file else ""
        settings = {
            name.removeprefix(ENVIRONMENT).lower(): value
            for name, value in given.items()
            if name.startswith(ENVIRONMENT) and name != FILE and value
        }
        return cls._validated({**_section(text), **settings})

    @classmethod
    def _validated(cls, values: object) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"])) or "context_folding"
            reason = reason_of(problem)
            raise ValueError(f"The setting {where} of context folding: {reason}.") from None


def _section(text: str) -> dict[str, Any]:
    document = _parsed(text)
    if document is None:
        return {}
    section = document.get("context_folding") if len(document) == 1 else None
    if "context_folding" not in document or not isinstance(section, dict | None):
        raise ValueError("The settings need one section, context_folding:, and no other key.")
    return cast("dict[str, Any]", section or {})


def _parsed(text: str) -> dict[Any, Any] | None:
    """Return the mapping in a YAML text; ``None`` for an empty text, ``{}`` for another type."""
    if not text.strip():
        return None
    try:
        document: Any = read_json(text)
    except ValueError:
        with needs_extra("folding", "A file of settings in YAML", ValueError):
            yaml: Any = import_module("yaml")
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"The settings are not YAML: {reason}.") from None
    if document is None:
        return None
    is_mapping = isinstance(
        document, dict
    )  # a separate variable, since the two type checkers narrow differently
    return cast("dict[Any, Any]", document) if is_mapping else {}
