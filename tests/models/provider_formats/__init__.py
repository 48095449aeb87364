"""What three interfaces say on the wire, from what their makers publish."""

from tests.models.provider_formats.answers import Call, Say

__all__ = ["Call", "Say"]
