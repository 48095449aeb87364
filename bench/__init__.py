"""Benchmarks: the cost of the library next to the same work without it. ``make bench`` runs them."""
