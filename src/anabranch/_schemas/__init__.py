"""JSON Schemas of other programs, checked in bounded time, and the forms that show them."""

from anabranch._schemas.foreign import (
    UnusableSchemaError,
    check_schema,
    filled_in,
    has_format,
    matches,
    misfit,
    misfits,
)
from anabranch._schemas.form_fields import (
    LEAVE_OUT,
    Field,
    Form,
    LeaveOut,
    Option,
    Options,
    Value,
    between,
)
from anabranch._schemas.form_reading import FormReader
from anabranch._schemas.form_schemas import protocol_field, with_text_choices
from anabranch._schemas.plain_meaning import as_meant, misfits_of, read_pairs, split_pairs
