"""Numbers for Prometheus: requests, how long they took, the queue before the model."""

from __future__ import annotations

import threading
import time
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinspace.server.batch_queue import Batcher

__all__ = ["Metrics", "Timed"]

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds


class Metrics:
    """Counts since the start, as text.

    >>> metrics = Metrics()
    >>> metrics.count("GET", "/healthz", 200, 0.002)
    >>> print(metrics.text(None).splitlines()[2])
    kinspace_requests_total{method="GET",route="/healthz",code="200"} 1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def count(self, method: str, route: str, code: int, seconds: float) -> None:
        """One request that was answered."""
        with self._lock:
            self._requests[method, route, code] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]
            for bound in (*BOUNDS, float("inf")):
                if seconds <= bound:
                    self._within[route, bound] += 1

    def text(self, batcher: Batcher | None) -> str:
        """The text format of Prometheus, version 0.0.4."""
        with self._lock:
            lines = _head("requests_total", "counter", "Answered requests.")
            for (method, route, code), number in sorted(self._requests.items()):
                labels = f'method="{method}",route="{route}",code="{code}"'
                lines.append(f"kinspace_requests_total{{{labels}}} {number}")
            lines += _head("request_seconds", "histogram", "From a request to its answer.")
            for route, seconds in sorted(self._seconds.items()):
                for bound in (*BOUNDS, float("inf")):
                    name = "+Inf" if bound == float("inf") else f"{bound:g}"
                    labels = f'route="{route}",le="{name}"'
                    number = self._within[route, bound]
                    lines.append(f"kinspace_request_seconds_bucket{{{labels}}} {number}")
                lines.append(f'kinspace_request_seconds_sum{{route="{route}"}} {seconds:.6f}')
                lines.append(f'kinspace_request_seconds_count{{route="{route}"}} {number}')
        if batcher is not None:
            lines += _head("queue_pictures", "gauge", "Pictures asked about now.")
            lines.append(f"kinspace_queue_pictures {batcher.taken}")
            lines += _head("batches_total", "counter", "Batches through the model.")
            lines.append(f"kinspace_batches_total {batcher.batches}")
            lines += _head("batch_pictures_total", "counter", "Pictures in these batches.")
            lines.append(f"kinspace_batch_pictures_total {batcher.pictures}")
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP kinspace_{name} {words}", f"# TYPE kinspace_{name} {kind}"]


class Timed:
    """Counts every request by its route, never by its path: a client cannot invent names."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, code = time.perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.count(method, route, code, time.perf_counter() - began)


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
