"""Converts memories to rows of their table, and rows to memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.memory import Filter, Memory, Provenance, Scope, indexed
from anabranch.messages import unchecked
from anabranch.stores._memory_tables import MEMORY, place_of

COLUMNS = [
    "id",
    "level",
    "owner",
    "title",
    "description",
    "content",
    "task",
    "prior",
    "helpful",
    "unhelpful",
    "provenance",
    "created_at",
]
"""The columns of a memory, in the order that :func:`to_memory` expects."""


def memory_row(memory: Memory) -> dict[str, Any]:
    """Return the row of a new memory."""
    fields = ("id", "title", "description", "content", "task", "prior", "helpful", "unhelpful")
    return {
        **{name: getattr(memory, name) for name in fields},
        "place": place_of(memory.scope),
        "digest": memory.digest,
        "level": memory.scope.level,
        "owner": memory.scope.name,
        "confidence": memory.confidence,
        "provenance": memory.provenance.model_dump_json(exclude_none=True),
        "created_at": memory.created_at,
        "title_words": indexed(memory.title),
        "description_words": indexed(memory.description),
        "content_words": indexed(f"{memory.content}\n{memory.task}"),
    }


def to_memory(row: Sequence[Any]) -> Memory:
    """Return the memory in a row of :data:`COLUMNS`, without validating its fields again."""
    fields = dict(zip(COLUMNS, row, strict=True))
    level, name = fields.pop("level"), fields.pop("owner")
    fields["provenance"] = Provenance.model_validate_json(fields["provenance"])
    return unchecked(Memory, scope=unchecked(Scope, level=level, name=name), **fields)


def allowed(which: Filter) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of a filter."""
    conditions = [MEMORY.c.confidence >= which.min_confidence]
    if which.scopes is not None:
        conditions.append(MEMORY.c.place.in_([place_of(scope) for scope in which.scopes]))
    return conditions
