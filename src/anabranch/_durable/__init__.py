"""Calls that outlive a process: each round is recorded once, and repeated for every equal request.

This package has the port of the store, the records of a call, the lease under which one worker at a
time runs the call, and the expiry of calls that nobody continues. The package knows no edge: an
edge such as ``mcp/`` passes in how questions become a reply, and the errors of its protocol. Author
code runs only in a ``Call`` of the engine, and databases are in ``stores/``.

    call_states.py the states of a call, and the table of the events that move it
    engine.py      the ports of engines and of processes
    store.py       the port of calls: records, and the promises of every store
    run_events.py  the port of run events: numbered events for readers in any process
    job.py         one request, the policy of a store, and the running calls of this process
    entries.py     entries and answers of a round as text, and merged into a journal again
    lease.py       the right to run a call, and its renewal
    recorder.py    the writes of one round while it is played
    states.py      a state that is too large to travel, and the latest state of a call
    rehearsal.py   a call run over its record, to see whether this code can continue it
    round.py       one round: opened, repeated or played, ended
    reading.py     reads a server's stored calls without running them
    service.py     runs calls for a server: rounds, and live calls
    expiry.py      the reaper: ends and compensates overdue calls, and deletes old ones
    undoing.py     finds unfinished compensations, and brings them forward

Imports point up this list: a module knows only those above it.
"""
