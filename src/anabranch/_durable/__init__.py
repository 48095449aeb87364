"""Calls that outlive a process: a round is recorded once and repeated whenever it is asked for again.

Here are the port of the store, the records of a call, the lease under which one worker at a time
runs it, and the expiry of calls that are not continued. The package knows no edge: ``mcp/`` passes in
how questions become a reply, and which errors its protocol has. Author code runs only in a ``Call``
of the engine, and databases are in ``stores/``.

    processes.py   the port of processes: which of those that share a store live
    call_states.py the states of a call, and the table of what moves it
    store.py       the port of calls: records, and what every store promises
    run_events.py  the port of run events: what happens, numbered, for readers anywhere
    policy.py      how a store is used: times, sizes, forks
    job.py         what one request asks for
    entries.py     entries and answers of a round as text, and merged into a journal again
    notes.py       what is noted of a round for those who look at it later
    lease.py       the right to run a call, and its renewal
    recorder.py    what one round writes while it is played
    states.py      a state that is too large to travel, and the latest state of a call
    replies.py     how a round ended, as text
    rehearsal.py   a call run over its record, to see whether this code can continue it
    lines.py       where a call goes on that is answered differently
    round.py       one round: opened, repeated or played, ended
    entered.py     answers that a person enters on a page, until the next request takes them
    reading.py     what a server reads of its stored calls
    running.py     the calls that run in this process
    service.py     runs calls for a server: rounds, and live calls
    expiry.py      the reaper: calls past their deadline are compensated, and later deleted

Imports point up this list: a module knows only those above it.
"""
