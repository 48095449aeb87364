"""The log of a command on stderr: one line for each record, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from pydantic import ValidationError

from anabranch._text import LogFormat, PrintableFormatter
from anabranch.errors import format_for_author


class JsonFormatter(logging.Formatter):
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


SHOWN = 200
"""Characters of a server's line in the log."""


def shorten_stray_line(record: logging.LogRecord) -> bool:
    """Turn the SDK's traceback about a server's line on stdout into one sentence."""
    error = record.exc_info[1] if record.exc_info else None
    if record.name == "mcp.client.stdio" and isinstance(error, ValidationError):
        line = error.errors(include_url=False, include_context=False)[0]["input"]
        shown = line if isinstance(line, str) and len(line) <= SHOWN else f"{str(line)[:SHOWN]}…"
        record.levelname, record.levelno = "WARNING", logging.WARNING
        record.msg = "left out a line of a server's stdout that is no message of MCP: %s"
        record.args, record.exc_info, record.exc_text = (shown,), None, None
    return True


def log_to_stderr(level: int, form: LogFormat = "text") -> None:
    """Write log records to stderr. The SDK, set up later, keeps existing logging."""
    handler = logging.StreamHandler()
    text = PrintableFormatter("%(levelname)s %(name)s: %(message)s")
    handler.addFilter(shorten_stray_line)
    handler.setFormatter(text if form == "text" else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])
