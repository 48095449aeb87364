"""Serves the tool of ``tools.py`` over stdio: ``python -m tests.mcp.stdio_server FILE``."""

import sys
from pathlib import Path

from tests.mcp.harness import serving
from tests.mcp.tools import journey

if __name__ == "__main__":
    serving(journey(Path(sys.argv[1]))).run("stdio")
