"""``anabranch demo``: serves the pick-a-card tool from a new process, and plays the game here."""

from __future__ import annotations

import logging
from functools import partial

from anabranch.cli._options import AnswersFile, EraOption, Model


def demo_command(
    *, era: EraOption = "auto", answers: AnswersFile = None, model: Model = None
) -> None:
    """Run the command."""
    from anabranch._terminal import Console, log_to_stderr, run_command
    from anabranch.cli._answering import open_sampler, read_answers
    from anabranch.cli._demo_game import demo
    from anabranch.cli._output import print_json

    log_to_stderr(logging.ERROR)
    sampler, given = open_sampler(model), read_answers(answers)
    print_json(run_command(partial(demo, Console(), era=era, sampler=sampler, answers=given)))
