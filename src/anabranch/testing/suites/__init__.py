"""What every store of calls and every store of conversations must pass."""
