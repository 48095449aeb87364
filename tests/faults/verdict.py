"""The rules for effects and undos within one call, whatever has died.

- an effect happens once for each idempotency key. It happens again only if the process was killed
  that had run it, and never once the tool has seen its value (law 2);
- a call that is done has had all its effects, and nothing of it is undone;
- of any other call each effect that has an undo is undone, under its own key, and again only if the
  process was killed that had undone it; nothing else is undone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tests.faults.journey import STEPS, has_undo
from tests.faults.ledger import Line


def broken_rules(lines: Sequence[Line], killed: Collection[int], *, done: bool) -> Iterable[str]:
    """Return, in words, which rules a call has broken; ``lines`` are all of its own, in order."""
    steps = [line for line in lines if line.kind == "step"]
    undos = [line for line in lines if line.kind == "undo"]
    yield from _repeated_wrongly(steps, killed)
    yield from _repeated_wrongly(undos, killed)
    yield from _after_it_was_seen(lines)
    if done:
        if undos:
            yield f"it is done, and {len(undos)} times something was undone"
        if {line.number for line in steps} != set(range(1, STEPS + 1)):
            yield f"it is done, and {len(steps)} steps have happened"
    else:
        yield from _undone_wrongly(lines, killed)


def _repeated_wrongly(lines: Sequence[Line], killed: Collection[int]) -> Iterable[str]:
    by_key: dict[str, list[Line]] = {}
    for line in lines:
        by_key.setdefault(line.key, []).append(line)
    for own in by_key.values():
        if any(line.pid not in killed for line in own[:-1]):
            yield f"{own[0].kind} {own[0].number} happened {len(own)} times"


def _after_it_was_seen(lines: Sequence[Line]) -> Iterable[str]:
    seen: set[str] = set()
    for line in lines:
        if line.kind == "seen":
            seen.add(line.key)
        elif line.kind == "step" and line.key in seen:
            yield f"step {line.number} happened after it had been seen"


def _undone_wrongly(lines: Sequence[Line], killed: Collection[int]) -> Iterable[str]:
    steps = {line.key: line for line in lines if line.kind == "step"}
    seen = {line.key for line in lines if line.kind == "seen"}
    undone = {line.key for line in lines if line.kind == "undo"}
    if not undone <= set(steps):
        yield f"{undone - set(steps)} never happened, and was undone"
    for key, line in steps.items():
        # Killed between effect and record: it is known by its key alone.
        in_the_gap = key not in seen and line.pid in killed
        if key in undone and not has_undo(line.number):
            yield f"step {line.number} has no undo, and was undone"
        if has_undo(line.number) and key not in undone and not in_the_gap:
            yield f"step {line.number} was not undone"
