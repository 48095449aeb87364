"""``python -m anabranch`` is the command line, and so is the script ``anabranch``."""

import sys


def main() -> int:
    """Run the command line; return its exit status, also if Ctrl-C interrupts its imports."""
    try:
        from anabranch.cli import main as run_line  # noqa: PLC0415 - takes a while

        return run_line()
    except KeyboardInterrupt:
        sys.stderr.write("anabranch: cancelled\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
