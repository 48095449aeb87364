"""Stores on disk of both kinds: those of the store tests."""

from tests.stores import conftest

url = conftest.url
