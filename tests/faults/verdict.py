"""The rules for effects and undos within one call, whatever has died.

- an effect happens once for each idempotency key, and under one key only. It happens again only if
  the process was killed that had run it, and never once the tool has seen its value (law 2); or if
  that process was out of reach for longer than a lease, and then under the same key;
- a call that is done has had all its effects, and nothing of it is undone;
- of any other call each effect that has an undo is undone, under its own key, and again only if the
  process was killed or out of reach that had undone it; nothing else is undone. What happened later
  is undone earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tests.faults.journey import SIDES, STEPS, has_undo
from tests.faults.ledger import Line

ASIDE = (SIDES, SIDES[::-1])
"""What happens at the same time, and is undone in any order."""


def broken_rules(
    lines: Sequence[Line],
    killed: Collection[int],
    cut_off: Collection[int] = (),
    *,
    done: bool,
    steps_of_all: int = STEPS,
) -> Iterable[str]:
    """Return, in words, which rules a call has broken; ``lines`` are all of its own, in order.

    ``cut_off`` are the processes that were out of reach for longer than a lease, ``steps_of_all`` is
    how many steps there are.
    """
    steps = [line for line in lines if line.kind == "step"]
    undos = [line for line in lines if line.kind == "undo"]
    yield from _under_two_keys(steps)
    yield from _repeated_wrongly(steps, {*killed, *cut_off})
    yield from _repeated_wrongly(undos, {*killed, *cut_off})
    yield from _after_it_was_seen(line for line in lines if line.pid not in cut_off)
    if done:
        if undos:
            yield f"it is done, and {len(undos)} times something was undone"
        if {line.number for line in steps} != set(range(1, steps_of_all + 1)):
            yield f"it is done, and {len(steps)} steps have happened"
    else:
        yield from _undone_wrongly(lines, killed)
        yield from _undone_too_early(undos)


def _under_two_keys(steps: Sequence[Line]) -> Iterable[str]:
    keys: dict[int, set[str]] = {}
    for line in steps:
        keys.setdefault(line.number, set()).add(line.key)
    for number, own in keys.items():
        if len(own) > 1:
            yield f"step {number} happened under {len(own)} keys"


def _undone_too_early(undos: Sequence[Line]) -> Iterable[str]:
    order = list(dict.fromkeys(line.number for line in undos))
    for place, number in enumerate(order):
        for later in order[place + 1 :]:
            if number < later and not any(number in a and later in b for a, b in ASIDE):
                yield f"step {number} was undone before step {later}"


def _repeated_wrongly(lines: Sequence[Line], killed: Collection[int]) -> Iterable[str]:
    by_key: dict[str, list[Line]] = {}
    for line in lines:
        by_key.setdefault(line.key, []).append(line)
    for own in by_key.values():
        if any(line.pid not in killed for line in own[:-1]):
            yield f"{own[0].kind} {own[0].number} happened {len(own)} times"


def _after_it_was_seen(lines: Iterable[Line]) -> Iterable[str]:
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
