"""How long a test waits for what a good run has at once."""

PATIENCE = 50
"""Seconds, for a machine with far more to do than this test; what never comes fails after them."""
