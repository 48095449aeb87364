"""A person at a terminal: how they are asked, what they are shown, and what answers in their place.

    console.py      lines on stderr, and one question on the screen at a time
    forms.py        an MCP form, drawn field by field
    answer_file.py  answers from a file instead: ``--answers FILE``
    respondent.py   who answers a question: the file, a model, the person, or no one
    interrupts.py   Ctrl-C while something runs
    exits.py        how a command ends early: one sentence on stderr and an exit status

The commands and the chat are built on this package. It knows neither of them, no transport and no
server: questions and answers arrive here in the words of ``anabranch.messages``. It never writes to
stdout, which carries results alone.
"""
