"""Checks of stores of run events: the unfinished turns of runs, and the leases on turns."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from anabranch._durable import NewEvents, TakenTurn, TurnState
from tests.suites.expectations import expect, no, opened, yes
from tests.suites.run_event_checks import (
    EVENT_CHECKS,
    OpenRunEvents,
    RunEventCheck,
    read_from,
    some,
)
from tests.suites.turn_samples import put_turn, running

MANY = 50_000
"""Events of one run: more than a store keeps of a finished run."""

READY = replace(running("t"), state=TurnState.READY, owner="")
ASLEEP = replace(READY, state=TurnState.WAITING, wakes_at=110.0, attempt=2)


async def a_turn_begins_once(open_store: OpenRunEvents) -> None:
    """A turn begins with its first event, in a run without an unfinished turn; the operation is atomic."""
    async with opened(open_store) as store:
        expect(await store.turn("r"), None, "there is none")
        turn = running("k")
        expect(await store.begin("r", turn, b"x", at=100.0), 1, "its first event")
        expect(await store.turn("r"), turn, "all columns")
        again = await store.begin("r", running("other", "b"), b"y", at=999.0)
        expect(again, None, "a turn ends by no time")
        await store.append_all([NewEvents("r", some("z"), owner="a", ends=True)], at=121.0)
        expect(await store.turn("r"), None, "it has ended")
        expect(await store.begin("r", turn, b"y", at=122.0), None, "the same turn again")
        expect(await store.turn("r"), None, "then nothing is taken")
        new = running("new", "b")
        expect(await store.begin("r", new, b"n", at=123.0), 3, "another turn")
        expect([await store.turn("r"), await store.find("r", "new")], [new, 3], "has begun")
        expect((await read_from(store, "r", 0, 2)), [(1, b"x"), (2, b"z")], "in order")
        expect(await store.turn("s"), None, "another run has another turn")


async def a_turn_changes_only_from_its_read_state(open_store: OpenRunEvents) -> None:
    """A difference in any column means that another process changed the turn; a time may only increase."""
    async with opened(open_store) as store:
        no(await store.move("r", READY, ASLEEP), "there is no turn")
        await put_turn(store, "r", ASLEEP)
        for other in (
            replace(ASLEEP, id="other"),
            replace(ASLEEP, state=TurnState.READY),
            replace(ASLEEP, owner="b"),
            replace(ASLEEP, process="p"),
            replace(ASLEEP, attempt=1),
            replace(ASLEEP, version="1"),
            replace(ASLEEP, wakes_at=111.0),
        ):
            no(await store.move("r", other, READY), f"it is not {other}")
        no(await store.move("r", ASLEEP, READY, now=109.0), "it is not due")
        expect(await store.turn("r"), ASLEEP, "nothing has changed")
        sooner = replace(ASLEEP, due=90.0, wakes_at=95.0, version="é\0", attempt=9, process="p")
        yes(await store.move("r", replace(ASLEEP, due=0.0), sooner), "any time")
        expect(await store.turn("r"), sooner, "all columns")
        yes(await store.move("r", sooner, None, now=90.0), "when it is due")
        expect(await store.turn("r"), None, "it is gone")


async def a_worker_takes_a_waiting_turn(open_store: OpenRunEvents) -> None:
    """A worker receives the turn and the place of its events; only one of several workers gets the turn."""
    async with opened(open_store) as store:
        for turn, version, now, is_taken in (
            (READY, "", 0.0, True),
            (READY, "1", 0.0, True),
            (replace(READY, version="1"), "1", 0.0, True),
            (replace(READY, version="1"), "2", 0.0, False),
            (replace(READY, version="1"), None, 0.0, True),
            (ASLEEP, "1", 109.0, False),
            (ASLEEP, "1", 110.0, True),
            (ASLEEP, None, 110.0, False),
            (running("t"), "1", 999.0, False),
        ):
            await put_turn(store, "r", turn)
            before = await store.last("r")
            taken = await store.take("r", "b", 150.0, now=now, version=version)
            ours = turn.taken("b", store.processes.name, 150.0) if is_taken else turn
            wanted = TakenTurn(ours, None, before) if is_taken else None
            expect(taken, wanted, f"{turn} by {version!r} at {now}")
            expect(await store.turn("r"), ours, "so it is stored")
            again = is_taken and await store.take("r", "c", 150.0, now=999.0, version="1")
            no(bool(again), "once")


async def a_taken_turn_has_its_events(open_store: OpenRunEvents) -> None:
    """A worker that takes a turn over gets its events from the first, and appends after the last."""
    async with opened(open_store) as store:
        await store.append("r", some("before"), at=99.0)
        turn = running("k")
        expect(await store.begin("r", turn, b"x", at=100.0), 2, "its first event")
        count, batch = 0, [b"."] * 1000
        while count < MANY:
            count += len(batch)
            await store.append_all([NewEvents("r", batch)], at=101.0)
        yes(await store.move("r", turn, replace(READY, id="k")), "its worker leaves")
        taken = await store.take("r", "b", 120.0, now=110.0, version="")
        ours = replace(running("k", "b", 120.0), process=store.processes.name)
        expect(taken, TakenTurn(ours, 2, 2 + count), "all its events")
        expect(await read_from(store, "r", 1, 2), [(2, b"x"), (3, b".")], "which can be read")


async def a_lease_on_a_turn_belongs_to_its_owner(open_store: OpenRunEvents) -> None:
    """The owner renews the lease, also late, and releases it."""
    async with opened(open_store) as store:
        no(await store.renew("r", "a", 120.0), "there is none")
        await put_turn(store, "r", running("t"))
        no(await store.renew("r", "b", 120.0), "it is another's")
        yes(await store.renew("r", "a", 120.0), "it is its own")
        expect(await store.turn("r"), running("t", "a", 120.0), "until then")
        await store.release("r", "b")
        expect(await store.turn("r"), running("t", "a", 120.0), "it is another's")
        await store.release("r", "a")
        expect(await store.turn("r"), None, "it is released")


async def the_last_events_end_the_turn(open_store: OpenRunEvents) -> None:
    """The last events and the end of the turn are one operation of the owner; other runs continue."""
    async with opened(open_store) as store:
        await put_turn(store, "r", running("t"))
        await store.append("r", some("a"), at=101.0)
        expect(await store.turn("r"), running("t"), "events alone end nothing")
        late = [NewEvents("r", some("x"), owner="b", ends=True), NewEvents("s", some("y"))]
        await store.append_all(late, at=103.0)
        expect([await store.last(run) for run in "rs"], [2, 1], "another owner's; the other run's")
        expect(await store.turn("r"), running("t"), "another owner ends nothing")
        ours = NewEvents("r", some("c"), owner="a", ends=True)
        await store.append_all([ours, replace(ours, run="none")], at=104.0)
        expect(await store.turn("r"), None, "it has ended")
        await store.append_all([ours], at=105.0)
        expect(await read_from(store, "r", 2, 1), [(3, b"c")], "once")
        expect(await store.last("r"), 3, "and nothing by who has not the lease")
        expect(await store.last("none"), 0, "no turn at all")
        expect(await store.turn("s"), None, "another run has a turn of its own")


async def only_the_owner_of_the_lease_adds_events(open_store: OpenRunEvents) -> None:
    """Events of an earlier owner, or of a run without a turn, are not added; the turn stays."""
    async with opened(open_store) as store:
        await put_turn(store, "r", running("t"))
        ours = NewEvents("r", some("x"), key="k", owner="a")
        await store.append_all([ours, replace(ours, run="none")], at=120.0)
        expect([await store.last(run) for run in ("r", "none")], [2, 0], "the owner's, though late")
        expect(await store.turn("r"), running("t"), "the turn stays")
        yes(await store.move("r", running("t"), running("t", "b")), "another has it")
        await store.append_all([ours, NewEvents("s", some("y"))], at=121.0)
        expect([await store.last(run) for run in "rs"], [2, 1], "another owner's; the other run's")
        await store.release("r", "b")
        await store.append_all([replace(ours, owner="b")], at=122.0)
        expect(await store.last("r"), 2, "a lease that was released")


async def a_lease_that_passes_on_stops_appends_in_flight(open_store: OpenRunEvents) -> None:
    """This includes appends that began under the lease: no append is added after another owner's check."""
    async with opened(open_store) as store:
        await put_turn(store, "r", running("t"))
        ours = NewEvents("r", some("x"), owner="a")
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(partial(store.append_all, [ours], at=101.0))
            await anyio.lowlevel.checkpoint()
            yes(await store.move("r", running("t"), running("t", "b")), "another takes it over")
            last = await store.last("r")
        expect(await store.last("r"), last, "nothing is added from then on")


async def a_turn_is_queued_behind_a_waiting_one(open_store: OpenRunEvents) -> None:
    """A run has one queued turn at a time; the turn before it may have ended meanwhile."""
    async with opened(open_store) as store:
        no(await store.queue("r", "next", b"\0x"), "there is no turn")
        for turn in (READY, running("t")):
            await put_turn(store, "r", turn)
            no(await store.queue("r", "next", b"\0x"), f"it does not wait: {turn}")
        expect(await store.queued("r"), None, "nothing")
        await put_turn(store, "r", ASLEEP)
        for _ in range(2):
            yes(await store.queue("r", "next", b"\0x"), "it waits, and the same turn again")
        no(await store.queue("r", "other", b"y"), "another one is queued")
        expect(await store.queued("r"), ("next", b"\0x"), "the first")
        yes(await store.move("r", ASLEEP, None), "it has ended")
        await store.look("r", 110.0)
        expect(await store.queued("r"), ("next", b"\0x"), "after another turn")
        expect(await store.begin("r", running("new"), b"x", at=9.0), None, "it is first")
        yes(await store.begin("r", running("next"), b"x", at=9.0) is not None, "it begins")
        expect(await store.queued("r"), None, "so it is queued no more")
        expect(await store.queued("s"), None, "another run has a queue of its own")


async def a_look_is_due_once_no_turn_is_unfinished(open_store: OpenRunEvents) -> None:
    """The earliest requested time counts; a process that claims the look postpones it for the others."""
    async with opened(open_store) as store:
        for run in ("r", "s"):
            await store.append(run, some("x"), at=1.0)
        expect(list(await store.claim(999.0, 999.0, 9)), [], "none was asked for")
        for at in (120.0, 110.0, 130.0):
            await store.look("r", at)
        expect(list(await store.claim(109.0, 200.0, 9)), [], "it is too early")
        expect(list(await store.claim(110.0, 200.0, 9)), ["r"], "the earliest")
        expect(list(await store.claim(199.0, 300.0, 9)), [], "it is put off")
        await store.look("s", 150.0)
        expect(list(await store.claim(200.0, 300.0, 1)), ["s"], "the longest first")
        expect(list(await store.claim(200.0, 300.0, 9)), ["r"], "then the other")
        turn = running("t")
        yes(await store.begin("r", turn, b"x", at=200.0) is not None, "a turn begins")
        expect(list(await store.claim(999.0, 999.0, 9)), ["s"], "its worker looks by itself")
        ours = NewEvents("r", some("x"), owner="a", ends=True, look_at=400.0)
        await store.append_all([replace(ours, owner="b", look_at=210.0)], at=300.0)
        await store.append_all([ours], at=300.0)
        expect(list(await store.claim(299.0, 500.0, 9)), [], "no owner's")
        expect(list(await store.claim(300.0, 500.0, 9)), ["r"], "an earlier one stays")
        yes(await store.begin("r", replace(turn, id="u"), b"x", at=500.0) is not None, "another")
        await store.append_all([replace(ours, look_at=600.0)], at=500.0)
        expect(list(await store.claim(599.0, 700.0, 9)), [], "the turn's worker looked by itself")
        expect(list(await store.claim(600.0, 700.0, 9)), ["r"], "that of the turn's end")


async def a_look_without_result_is_over(open_store: OpenRunEvents) -> None:
    """A look is over or postponed, unless another look was requested meanwhile."""
    async with opened(open_store) as store:
        await store.append("r", some("x"), at=1.0)
        await store.look("r", 110.0)
        await store.looked("r", 200.0, now=120.0)
        expect(list(await store.claim(120.0, 130.0, 9)), ["r"], "it was due")
        await store.looked("r", 200.0, now=120.0)
        expect(list(await store.claim(199.0, 300.0, 9)), [], "it is put off")
        expect(list(await store.claim(200.0, 300.0, 9)), ["r"], "until then")
        await store.looked("r", math.inf, now=200.0)
        expect(list(await store.claim(999.0, 999.0, 9)), [], "it is over")
        await put_turn(store, "r", ASLEEP)
        await store.look("r", 105.0)
        await store.looked("r", math.inf, now=100.0)
        yes(await store.move("r", ASLEEP, None), "the turn ends")
        expect(list(await store.claim(105.0, 109.0, 9)), ["r"], "no turn looks for it")
        await put_turn(store, "r", ASLEEP)
        taken = await store.take("r", "b", 150.0, now=110.0, version="")
        await store.release("r", "b")
        yes(taken is not None, "a worker looks for it")
        expect(list(await store.claim(999.0, 999.0, 9)), [], "so it is over")


async def due_turns_are_found(open_store: OpenRunEvents) -> None:
    """Turns come in order of their due time, up to a limit, in any state that has not ended."""
    late, held = replace(ASLEEP, due=120.0), running("t", "a", 130.0)
    turns = {"late": late, "early": READY, "held": held, "done": running("t", "a", 105.0)}
    async with opened(open_store) as store:
        for run, turn in turns.items():
            await put_turn(store, run, turn)
        await store.append_all([NewEvents("done", some("x"), owner="a", ends=True)], at=104.0)
        found = list(await store.overdue(120.0, 9))
        expect(found, [("early", READY), ("late", late)], "those whose time is over")
        expect(list(await store.overdue(120.0, 1)), found[:1], "the longest first")
        expect(len(await store.overdue(math.inf, 9)), 3, "all")
        expect(list(await store.overdue(130.0, 1, is_running=True)), [("held", held)], "that run")


async def due_turns_are_claimed(open_store: OpenRunEvents) -> None:
    """The longest due come first, up to a limit, for a version; running turns stay with their workers."""
    turns = {
        "late": replace(ASLEEP, due=120.0),
        "early": replace(READY, due=105.0),
        "for 1": replace(READY, due=115.0, version="1"),
        "runs": running("t", "a", 100.0),
        "not due": replace(READY, due=121.0),
    }
    async with opened(open_store) as store:
        for run, turn in turns.items():
            await put_turn(store, run, turn)
        await store.look("late", 100.0)
        expect(list(await store.claim(120.0, 130.0, 1)), ["early"], "the longest first")
        expect(list(await store.claim(120.0, 130.0, 9)), ["late"], "each once; any version")
        expect(list(await store.claim(120.0, 130.0, 9, version="1")), ["for 1"], "its version")
        expect(list(await store.claim(129.0, 130.0, 9, version="1")), ["not due"], "put off")
        claimed = await store.claim(130.0, 131.0, 9, version="1")
        expect(sorted(claimed), ["early", "for 1", "late", "not due"], "until then")
        expect(await store.turn("late"), replace(turns["late"], due=131.0), "no other column")
        yes(await store.move("late", replace(turns["late"], due=131.0), None), "it ends")
        expect(list(await store.claim(100.0, 140.0, 9)), ["late"], "its look is not put off")


async def a_share_has_a_limit_of_running_turns(open_store: OpenRunEvents) -> None:
    """Other turns of the share and the choice of worker do not matter; other shares have other limits."""
    async with opened(open_store) as store:
        store.per_share = 2
        for run, share in {"a1": "a", "a2": "a", "a3": "a", "b1": "b"}.items():
            turn = running(run)
            yes(await store.begin(run, turn, b"x", at=1.0, share=share) is not None, "it begins")
            yes(await store.move(run, turn, replace(READY, id=run)), "it waits")
        await store.append("a4", some("x"), at=1.0)
        yes(
            await store.begin("a6", running("a0"), b"x", at=1.0, share="a") is not None, "it begins"
        )
        await store.release("a6", "a")
        new = running("a4")
        yes(await store.begin("a4", new, b"x", at=1.0, share="a") is not None, "no worker has it")
        store.per_share = 1
        taken = await store.take("a1", "b", 150.0, now=9.0, version="")
        yes(taken is not None, "of a share that works on nothing")
        expect(list(await store.claim(120.0, 120.0, 9)), ["b1"], "shares with room")
        store.per_share = 2
        claimed = await store.claim(120.0, 500.0, 9)
        expect(sorted(claimed), ["a2", "a3", "b1"], "shares with room for one more")
        await store.release("a4", "a")
        await store.look("a4", 100.0)
        works: dict[str, Any] = {"share": "a", "works": True}
        begun = await store.begin("a4", running("a5"), b"x", at=120.0, **works)
        yes(begun is not None, "a worker begins one, as a look says")
        taken = await store.take("a2", "b", 150.0, now=121.0, version="")
        expect(taken, None, "two are running")
        begun = await store.begin("a6", running("a6"), b"x", at=121.0, **works)
        expect(begun, None, "nor does another begin")
        expect(list(await store.claim(500.0, 600.0, 9)), ["b1"], "the other's")
        taken = await store.take("a3", "b", 150.0, now=121.0, version=None)
        yes(taken is not None, "whoever only ends it")
        await store.release("a1", "b")
        await store.release("a3", "b")
        claimed = await store.claim(121.0, 600.0, 9)
        expect(sorted(claimed), ["a2", "a6"], "at once, although a worker was called for them")
        taken = await store.take("a2", "b", 150.0, now=121.0, version="")
        yes(taken is not None, "others have ended")


async def a_turn_of_a_full_share_keeps_its_due_time(open_store: OpenRunEvents) -> None:
    """A full share does not change when a sleeping turn, or a turn for another version, is due."""
    waits = {"asleep": ASLEEP, "for 1": replace(READY, due=500.0, version="1")}
    async with opened(open_store) as store:
        store.per_share = 1
        for run, turn in waits.items():
            await put_turn(store, run, turn)
        begun = await store.begin("r", running("r"), b"x", at=1.0, works=True)
        yes(begun is not None, "its share is full")
        for run, turn in waits.items():
            expect(await store.take(run, "b", 150.0, now=1.0, version="2"), None, run)
            expect(await store.turn(run), turn, f"{run}: no column changes")


RUN_EVENT_CHECKS: tuple[RunEventCheck, ...] = (
    *EVENT_CHECKS,
    a_turn_begins_once,
    a_turn_changes_only_from_its_read_state,
    a_worker_takes_a_waiting_turn,
    a_taken_turn_has_its_events,
    a_lease_on_a_turn_belongs_to_its_owner,
    the_last_events_end_the_turn,
    only_the_owner_of_the_lease_adds_events,
    a_lease_that_passes_on_stops_appends_in_flight,
    a_turn_is_queued_behind_a_waiting_one,
    a_look_is_due_once_no_turn_is_unfinished,
    a_look_without_result_is_over,
    due_turns_are_found,
    due_turns_are_claimed,
    a_share_has_a_limit_of_running_turns,
    a_turn_of_a_full_share_keeps_its_due_time,
)
"""The checks that open a store once."""
