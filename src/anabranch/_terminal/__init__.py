"""The user at a terminal: asks them questions, shows them output, and takes answers from a file or a model.

    console.py      lines on stderr, and one question on the screen at a time
    forms.py        an MCP form, drawn field by field
    answer_file.py  answers from a file instead: ``--answers FILE``
    respondent.py   chooses the source of an answer: the file, a model, or the user
    interrupts.py   Ctrl-C while something runs
    live_region.py  text that the terminal redraws below the last line
    logs.py         the log on stderr
    exits.py        errors that end a command: one sentence on stderr and an exit status

The commands and the chat use this package. The package imports neither of them, no transport and no
server: questions and answers are objects of ``anabranch.messages``. The package writes to stderr, and
leaves stdout to results.
"""
