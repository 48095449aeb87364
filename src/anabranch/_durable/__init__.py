"""Calls that outlive a process: a round is recorded once and repeated whenever it is asked for again.

Here are the port of the store, the records of a call, the lease under which one worker at a time
runs it, and the expiry of calls that are not continued. The package knows no edge: ``mcp/`` passes in
how questions become a reply, and which errors its protocol has. Author code runs only in a ``Call``
of the engine, and databases are in ``stores/``.

    call_states.py the states of a call, and the table of what moves it
    store.py       the port of calls: records, and what every store promises
    run_events.py  the port of run events: what happens, numbered, for readers anywhere
    job.py         what one request asks for, by which rules, and the calls that run in this process
    engine.py      the ports of engines and of processes
    entries.py     entries and answers of a round as text, and merged into a journal again
    lease.py       the right to run a call, and its renewal
    recorder.py    what one round writes while it is played
    states.py      a state that is too large to travel, and the latest state of a call
    rehearsal.py   a call run over its record, to see whether this code can continue it
    round.py       one round: opened, repeated or played, ended
    reading.py     what a server reads of its stored calls
    service.py     runs calls for a server: rounds, and live calls
    expiry.py      the reaper: calls past their deadline are compensated, and later deleted

Imports point up this list: a module knows only those above it.
"""
