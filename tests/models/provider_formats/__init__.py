"""The wire formats of three interfaces, as their providers publish them."""

from tests.models.provider_formats.answers import Call, Say

__all__ = ["Call", "Say"]
