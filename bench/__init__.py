"""Benchmarks: what the library costs next to doing the same without it. ``make bench`` runs them."""
