"""A card game: a tool in three phases, with a branch that asks the model.

``anabranch demo`` plays it, so the tool itself is part of the package: read it in
``src/anabranch/cli/_demo_tool.py``. This file serves it like any other tool file,
``anabranch serve pick_card.py``.
"""

from anabranch.cli._demo_tool import CardChoice, Hand, Outcome, Pick, PickCard, pick_card

__all__ = ["CardChoice", "Hand", "Outcome", "Pick", "PickCard", "pick_card"]
