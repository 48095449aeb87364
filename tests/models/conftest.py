"""Provides a provider server, and an environment in which all three interfaces lead to it."""

from collections.abc import AsyncIterator

import pytest

from tests.models.provider_server import Provider, provider_server


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Provider]:
    async with provider_server() as provider:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{provider.url}/v1")
        yield provider
