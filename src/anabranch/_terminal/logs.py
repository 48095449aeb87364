"""The log of a command on stderr: one line for each record, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from anabranch._text import LogFormat, PrintableFormatter
from anabranch.errors import format_for_author


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON, in ASCII, with the id of the record's call."""

    def format(self, record: logging.LogRecord) -> str:
        from anabranch._telemetry import log_fields  # imports OpenTelemetry

        written = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": written.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **log_fields(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = format_for_author(*record.exc_info)
        return json.dumps(fields)


def log_to_stderr(level: int, form: LogFormat = "text") -> None:
    """Write log records of ``level`` and above to stderr, one line each: plain, or JSON.

    Call this before the SDK sets up logging. The SDK draws boxes around tracebacks, and leaves
    existing logging as configured.
    """
    handler = logging.StreamHandler()
    text = PrintableFormatter("%(levelname)s %(name)s: %(message)s")
    handler.setFormatter(text if form == "text" else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])
