"""Recorded calls as users read them: the events of each round, and a comparison with the present code.

The package only reads: no code here runs an effect, asks a question or writes to a store. The package knows
neither terminals nor HTTP: ``cli/`` draws recorded calls, and ``chat/`` sends them to a browser.

    shapes.py      a recorded call, its rounds and steps
    steps.py       the steps of a call, put together from its rounds
    reading.py     a call, read from its store
    replaying.py   a recorded call run against the present code

Imports point up this list.
"""
