"""A card game: a tool in three phases, with a branch that asks the model.

``anabranch demo`` plays this game, so the tool is part of the package: its source is
``src/anabranch/cli/_demo_tool.py``. ``anabranch serve pick_card.py`` serves the tool by this file.
"""

from anabranch.cli._demo_tool import CardChoice, Hand, Outcome, Pick, PickCard, pick_card

__all__ = ["CardChoice", "Hand", "Outcome", "Pick", "PickCard", "pick_card"]
