"""Metrics for Prometheus: requests, their durations, and the queue before the model."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["TEXT_FORMAT", "Metrics", "MetricsMiddleware"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # upper bounds of the buckets
# what generate_latest writes; the library's own constant names a newer version from 0.22 on
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one app, in a registry of its own: several apps may run in one process.

    queued: returns how many pictures are in the queue.

    >>> metrics = Metrics(queued=lambda: 3)
    >>> metrics.count_request("GET", "/healthz", 200, seconds=0.002)
    >>> metrics.registry.get_sample_value("kinspace_queue_pictures")
    3.0
    """

    def __init__(self, queued: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "kinspace_requests_total",
            "Answered requests.",
            ("method", "route", "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "kinspace_request_seconds",
            "Time from a request to its response.",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        queue = Gauge("kinspace_queue_pictures", "Pictures being processed.", registry=registry)
        queue.set_function(queued)
        self._batches = Counter(
            "kinspace_batches_total", "Batches through the model.", registry=registry
        )
        self._pictures = Counter(
            "kinspace_batch_pictures_total", "Pictures in these batches.", registry=registry
        )

    def count_request(self, method: str, route: str, code: int, *, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(code)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, pictures: int) -> None:
        """Count a batch of this many pictures."""
        self._batches.inc()
        self._pictures.inc(pictures)

    def response(self) -> Response:
        """All metrics in the text format of Prometheus."""
        return Response(generate_latest(self.registry), media_type=TEXT_FORMAT)


class MetricsMiddleware:
    """Counts each request under its route, not its path, so that clients cannot add labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, code = time.perf_counter(), 500

        async def send_and_note_code(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note_code)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.count_request(method, route, code, seconds=time.perf_counter() - start)
