"""The rules for effects and undos within one call, whatever processes have died.

- An effect happens once for each idempotency key, and under one key only. The effect happens
  again, under that key, only if it was in flight when its process was killed, or went out of reach
  or came back. It does not happen again once the tool has seen its value (law 2), unless it was
  still in flight then.
- A call that is done has had all its effects, and none of them is undone.
- In any other call, each effect with an undo is undone under its key. An undo runs again only if it
  was in flight in the same way. Nothing else is undone. Later effects are undone first.

An effect is in flight until it is recorded and the tool sees its value; an undo until it is
recorded. These repetitions are the ones in "What does not hold" of ``docs/durability.md``: a crash
between an effect and its record, a store that stays away longer than a lease, and a lease lost
while the effect ran.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from tests.faults.journey import SIDES, STEPS, has_undo
from tests.faults.ledger import HAPPENS, MARKS, Line

ASIDE = (SIDES, SIDES[::-1])
"""The concurrent parts of a call, whose undos may run in any order."""

UNDOING = {"undo", "undone"}


def by_call(lines: Iterable[Line]) -> Mapping[str, Sequence[Line]]:
    """Return the lines of each call, together with the lines about processes that were out of reach."""
    found: dict[str, list[Line]] = {}
    marks: list[Line] = []
    for line in lines:
        if line.kind in MARKS:
            marks.append(line)
            for own in found.values():
                own.append(line)
        else:
            found.setdefault(line.call, list(marks)).append(line)
    return found


def wrong_in(
    lines: Sequence[Line], killed: Collection[int], done: Collection[str], steps_of_all: int
) -> Iterable[str]:
    """Return, in words, which calls of a ledger broke which rules; ``done`` names the completed calls."""
    for name, own in by_call(lines).items():
        run = next(line.run for line in own if line.run)
        for wrong in broken_rules(own, killed, done=name in done, steps_of_all=steps_of_all):
            yield f"{name} ({run}): {wrong}"


def broken_rules(
    lines: Sequence[Line], killed: Collection[int], *, done: bool, steps_of_all: int = STEPS
) -> Iterable[str]:
    """Return, in words, the rules that a call broke; ``lines`` are those from ``by_call``.

    ``steps_of_all`` is the number of steps of the call.
    """
    steps = [line for line in lines if line.kind == "step"]
    undos = [line for line in lines if line.kind == "undo"]
    yield from _under_two_keys(steps)
    yield from _repeated_wrongly(lines, killed)
    yield from _after_it_was_seen(lines)
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
    by_key: dict[tuple[str, str], list[int]] = {}
    for index, line in enumerate(lines):
        if line.kind in HAPPENS:
            by_key.setdefault((line.kind, line.key), []).append(index)
    for own in by_key.values():
        lasting = [index for index in own if not _was_disturbed(lines, index, killed)]
        others = {lines[index].pid for index in own}
        if len(others) > 1:
            lasting = [index for index in lasting if not _is_late(lines, index)]
        if len(lasting) > 1:
            first = lines[own[0]]
            yield f"{first.kind} {first.number} happened {len(own)} times"


def _was_disturbed(lines: Sequence[Line], index: int, killed: Collection[int]) -> bool:
    """Return whether an effect was in flight when its process was killed, or went out of reach or back."""
    line = lines[index]
    marks = [n for n, mark in enumerate(lines) if mark.kind in MARKS and mark.pid == line.pid]
    for end in range(index + 1, len(lines)):
        if _goes_on(line, lines[end]):
            return any(index < mark < end for mark in marks)
    return line.pid in killed or any(index < mark for mark in marks)


def _is_late(lines: Sequence[Line], index: int) -> bool:
    """Return whether an effect may have started before its process went out of reach, and ended after.

    The effect is the first action of this process after its return. The process may have lost its
    lease meanwhile, and another process may have repeated the effect. The process itself would have
    to take the lease again first.
    """
    line = lines[index]
    for before in reversed(lines[:index]):
        if before.kind in MARKS:
            if before.pid == line.pid:
                return before.kind == "back"
        elif _goes_on(before, line):
            return False
    return False


def _goes_on(line: Line, later: Line) -> bool:
    """Return whether the same process continued after an effect, which it does once that is recorded."""
    if later.pid != line.pid or later.kind in MARKS:
        return False
    # Branches work concurrently; undos run one after the other, when no branch runs.
    return {line.kind, later.kind} & UNDOING != set() or later.strand == line.strand


def _after_it_was_seen(lines: Sequence[Line]) -> Iterable[str]:
    seen: set[str] = set()
    for index, line in enumerate(lines):
        if line.kind == "seen":
            seen.add(line.key)
        elif line.kind == "step" and line.key in seen and not _is_late(lines, index):
            yield f"step {line.number} happened after it had been seen"


def _undone_wrongly(lines: Sequence[Line], killed: Collection[int]) -> Iterable[str]:
    steps = {line.key: line for line in lines if line.kind == "step"}
    seen = {line.key for line in lines if line.kind == "seen"}
    undone = {line.key for line in lines if line.kind == "undo"}
    if not undone <= set(steps):
        yield f"{undone - set(steps)} never happened, and was undone"
    for key, line in steps.items():
        # Killed between effect and record: only the key identifies this effect.
        in_the_gap = key not in seen and line.pid in killed
        if key in undone and not has_undo(line.number):
            yield f"step {line.number} has no undo, and was undone"
        if has_undo(line.number) and key not in undone and not in_the_gap:
            yield f"step {line.number} was not undone"
