"""The map as the page asks for it: at once where the run folder has it, else when it is drawn."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kinspace.inference.model import Model
from kinspace.server import catalog
from kinspace.server.map_positions import gallery_places, kept_places

__all__ = ["Drawing"]

BEHIND = 10  # steps of priority
LOG = logging.getLogger("kinspace.server")


class Drawing:
    """The map of a gallery, and the thread that draws it while the server answers.

    answer: JSON, {"state": "drawing"}, "failed", or "ready" with the places. status: gets lines for
    a terminal.

    >>> import kinspace
    >>> model = kinspace.load("runs/moths-nra-1")  # doctest: +SKIP
    >>> Drawing(model).answer  # doctest: +SKIP
    b'{"state":"drawing"}'
    """

    def __init__(self, model: Model, status: Callable[[str], None] = lambda text: None) -> None:
        self._model, self._status = model, status
        self.answer = catalog.to_json({"state": "drawing"})
        kept = kept_places(model)
        if kept is not None:
            self._ready(kept)
            return
        # a daemon: who ends the server does not wait for a map
        threading.Thread(target=self._draw, name="kinspace-map", daemon=True).start()

    def _ready(self, places: NDArray[np.float32]) -> None:
        self.answer = catalog.to_json({"state": "ready"} | catalog.map_of(places))

    def _draw(self) -> None:
        if sys.platform == "linux":  # where a thread has a priority of its own: requests go first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BEHIND)
        try:
            self._ready(gallery_places(self._model, status=self._status))
            self._status("the map is ready")
        except Exception:  # whatever is wrong with the map, the rest is served
            LOG.exception("the map could not be drawn")
            self.answer = catalog.to_json({"state": "failed"})
