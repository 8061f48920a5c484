"""`/metrics`: figures of the review service in Prometheus' text format, version 0.0.4.

Everything is counted from the databases on request, so that a restart resets nothing. Source of the
format: prometheus.io/docs/instrumenting/exposition_formats.
"""

from collections.abc import Iterator, Mapping

import msgspec
from litestar import Response, get
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from supervisor.parts import Parts
from supervisor.reviews.pages.review_views import service_of
from supervisor.reviews.service import ReviewService
from supervisor.reviews.store.figures import figures
from supervisor.server.operator.operator_api import AnyRequest, parts_of

PICO = 10**12
# litestar adds the charset.
TEXT_FORMAT = "text/plain; version=0.0.4"


@get("/metrics", media_type=TEXT_FORMAT, sync_to_thread=True)
def metrics(request: AnyRequest) -> Response[bytes]:
    """Return the counts. Raise `UserError` if reviews are off."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ReviewFigures(parts_of(request), service_of(request)))
    return Response(generate_latest(registry), media_type=TEXT_FORMAT)


class _ReviewFigures(Collector):
    def __init__(self, parts: Parts, service: ReviewService) -> None:
        self._parts = parts
        self._service = service

    def describe(self) -> list[Metric]:
        """Describe nothing in advance: registering would count everything once more."""
        return []

    def collect(self) -> Iterator[Metric]:
        parts = self._parts
        with self._service.engine.connect() as connection:
            found = figures(connection)
        oldest_at, now = found.backlog.oldest_at, parts.clock.now()
        oldest_s = 0.0 if oldest_at is None else max(0.0, now - oldest_at)
        cost, tokens = parts.spending.of_kind("review")
        is_stopped = parts.kill_switch.reason() is not None
        yield _gauge("queue_depth", "Reviews that are wanted and not begun.", found.backlog.waiting)
        yield _gauge("runs_under_way", "Reviews that run now.", found.under_way)
        yield _gauge(
            "unhandled_deliveries", "Webhooks nothing came of yet.", found.backlog.unhandled
        )
        yield _gauge("oldest_unhandled_seconds", "Age of the oldest of these.", oldest_s)
        yield _by("deliveries", "Webhooks, by what became of them.", "outcome", found.deliveries)
        yield _by("runs", "Reviews that ended, by outcome.", "outcome", found.runs)
        yield _counter("post_failures", "Reviews that the forge did not take.", found.not_posted)
        yield _counter("review_cost_dollars", "What models cost in reviews.", cost / PICO)
        kinds = msgspec.structs.asdict(tokens)
        yield _by("review_tokens", "Tokens of models in reviews, by kind.", "kind", kinds)
        held = GaugeMetricFamily("gatehouse_holds", "Holds that stand.", labels=["scope"])
        for scope in ("all", "forge", "repository", "pull"):
            held.add_metric([scope], found.holds.get(scope, 0))
        yield held
        yield _gauge("stopped", "1 while everything is stopped.", int(is_stopped))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gatehouse_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"gatehouse_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"gatehouse_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
