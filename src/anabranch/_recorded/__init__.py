"""Recorded calls as people read them: what happened in each round, and what the code would do now.

Everything here reads: no effect is run, nothing is asked or written. The package knows neither
terminals nor HTTP; ``cli/`` draws what it returns, and ``chat/`` sends it to a browser.

    shapes.py      a recorded call, its rounds and steps
    steps.py       the steps of a call, put together from its rounds
    reading.py     a call, read from its store
    replaying.py   a recorded call run against the present code

Imports point up this list.
"""
