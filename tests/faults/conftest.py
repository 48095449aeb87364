"""Stores of both kinds: those of the store tests."""

from tests.stores import conftest

postgres = conftest.postgres
url = conftest.url
