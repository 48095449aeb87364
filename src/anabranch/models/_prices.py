"""The cost of replies, by the published prices of providers."""

from __future__ import annotations

from anabranch.messages import Usage


def price_of(model: str, usage: Usage) -> float | None:
    """Return the price of a reply in US dollars; ``None`` if unknown, or without the extra ``models``."""
    try:
        from genai_prices import Usage as Priced  # noqa: PLC0415 - an extra
        from genai_prices import calc_price  # noqa: PLC0415
    except ImportError:
        return None
    counts = Priced(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return float(calc_price(counts, model.rpartition(":")[2]).total_price)
    except (LookupError, ValueError):
        return None
