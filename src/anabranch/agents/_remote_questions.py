"""An MCP server's questions to the person, as far as they can be shown to one."""

from __future__ import annotations

from pydantic import ValidationError

from anabranch._asking.host import Capabilities
from anabranch._schemas import Form
from anabranch.agents._ports import Question
from anabranch.elicitation import describe
from anabranch.errors import ToolError
from anabranch.messages import UrlRequest


def shown(question: Question, able: Capabilities) -> Question | None:
    """Return ``question`` as it can be shown, ``None`` if ``able`` does not include such ones.

    Of a form, that is what the protocol knows: an answer is checked against it here, so it must
    have neither patterns, which may take for ever to match, nor references.

    Raises:
        ToolError: it is no form of the protocol.
    """
    if isinstance(question, UrlRequest):
        return question if able.elicitation_url else None
    if not able.elicitation:
        return None
    try:
        form = Form.model_validate(question.requested_schema)
    except ValidationError as error:
        why = describe(error)
        raise ToolError(f"The server asks with a form that cannot be shown: {why}.") from None
    fields = form.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        include={"properties"},
        exclude={"properties": {"__all__": {"pattern"}}},
    )
    schema = {"type": "object", **fields, "required": sorted(form.required)}
    return question.model_copy(update={"requested_schema": schema})
