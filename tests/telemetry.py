"""Collects the spans and metrics that OpenTelemetry's SDK receives about calls."""

import json
from typing import Any

import mcp.shared._otel as sdk_telemetry
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from anabranch import _telemetry


class Collected:
    """Collects the spans and metrics of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._tracers = TracerProvider(**options)
        self._tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._meters = MeterProvider([self._reader])
        monkeypatch.setattr(_telemetry, "_tracer", self._tracers.get_tracer("anabranch"))
        monkeypatch.setattr(sdk_telemetry, "_tracer", self._tracers.get_tracer("mcp"))
        instruments = _telemetry.Instruments(self._meters.get_meter("anabranch"))
        monkeypatch.setattr(_telemetry, "_instruments", instruments)

    def tracer(self, scope: str) -> Any:
        """Return a tracer for the surrounding application."""
        return self._tracers.get_tracer(scope)

    def close(self) -> None:
        self._tracers.shutdown()
        self._meters.shutdown()

    def of(self, scope: str) -> list[Any]:
        spans: tuple[Any, ...] = self._exporter.get_finished_spans()
        return [each for each in spans if each.instrumentation_scope.name == scope]

    @property
    def spans(self) -> list[Any]:
        return self.of("anabranch")

    @property
    def everything(self) -> str:
        """Return all spans of anabranch as text."""
        return "\n".join(each.to_json() for each in self.spans)

    def named(self, name: str) -> list[Any]:
        return [each for each in self.spans if each.name == f"anabranch.{name}"]

    def one(self, name: str) -> Any:
        [span] = self.named(name)
        return span

    def metric(self, name: str) -> dict[str, float]:
        """Return the values of a metric (or their number), by outcome or type of tokens."""
        found: dict[str, float] = {}
        collected: Any = self._reader.get_metrics_data()
        data = json.loads(collected.to_json())
        for scope in data["resource_metrics"][0]["scope_metrics"]:
            for each in scope["metrics"]:
                if each["name"] == f"anabranch.{name}":
                    for point in each["data"]["data_points"]:
                        attributes = point["attributes"]
                        value = point["value"] if "value" in point else point["count"]
                        kind = attributes.get("gen_ai.token.type", "")
                        found[attributes.get("anabranch.outcome", kind)] = value
        return found
