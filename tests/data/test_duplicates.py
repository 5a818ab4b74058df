import numpy as np

from kinspace.data import check, from_arrays
from kinspace.data.duplicates import MOST_DIFFERENCE, MOST_OF_CONTRAST, find_groups
from odd_pictures import scene


def test_the_search_for_duplicates_misses_nothing() -> None:
    rng = np.random.default_rng(0)
    bases = np.stack([np.asarray(scene(i, 16)) for i in range(40)]).astype(float)
    pale = 250 + rng.normal(0, 1.5, (20, 16, 16, 3))  # little contrast: alike only if equal
    flat = np.repeat(rng.integers(0, 256, (10, 1, 1, 3)), 16, axis=1).repeat(16, axis=2)
    originals = np.concatenate([bases, pale, flat.astype(float)])
    copies = originals + rng.normal(
        0, rng.uniform(0, 12, (len(originals), 1, 1, 1)), originals.shape
    )
    thumbnails = np.concatenate([originals, copies]).clip(0, 255).round().astype(np.uint8)
    values = thumbnails.reshape(len(thumbnails), -1, 3).astype(float)
    contrast = np.sqrt(((values - values.mean(axis=1, keepdims=True)) ** 2).mean(axis=(1, 2)))
    limit = np.minimum(MOST_DIFFERENCE, MOST_OF_CONTRAST * contrast)
    expected = {
        frozenset((i, j))
        for i in range(len(values))
        for j in range(i)
        if np.sqrt(((values[i] - values[j]) ** 2).mean()) <= min(limit[i], limit[j])
    }
    digests = [bytes([i]) for i in range(len(values))]
    found = find_groups(digests, thumbnails)
    assert len(expected) > 20
    assert {frozenset(group) for group in found if len(group) == 2} == expected


def test_blank_pictures_of_another_color_are_not_the_same() -> None:
    images = np.stack([np.full((8, 8, 3), level, np.uint8) for level in (0, 3, 250, 255, 255)])
    result = check(from_arrays(images, [0, 0, 1, 1, 0]))
    assert result.duplicates is not None
    assert [group.names for group in result.duplicates] == [("picture 3", "picture 4")]
