"""Whether pictures are still the same, without reading them all: names, sizes and times."""

from __future__ import annotations

import hashlib

from kinspace.data.pictures import Pictures

__all__ = ["fingerprint"]


def fingerprint(pictures: Pictures) -> str:
    """A short text that changes with the pictures and with their order.

    Files: name, size and time of the last change of each. Archives: the names of the members, size
    and time of the archive. Arrays: the pixels.

    >>> import numpy as np
    >>> from kinspace.data.pictures import ArrayPictures
    >>> fingerprint(ArrayPictures(np.zeros((2, 8, 8), np.uint8)))
    '...'
    """
    whole = hashlib.blake2b(digest_size=16)
    for index in range(len(pictures)):
        whole.update(repr((pictures.name(index), pictures.stamp(index))).encode())
    return whole.hexdigest()
