"""Maximum time that a test waits for an event; in a passing test, the event comes immediately."""

PATIENCE = 50
"""Seconds that suffice on a very busy machine. A test fails if an event has not come by then."""
