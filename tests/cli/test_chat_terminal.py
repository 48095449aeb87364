"""``anabranch chat`` at a pseudo-terminal, played by keyboard."""

from pathlib import Path

TARGET = str(Path(__file__).with_name("chatted.py"))
