from pathlib import Path

import numpy as np

from kinspace.data import digits_dataset, load_dataset, moths_dataset


def test_digits_are_built_in() -> None:
    digits = load_dataset("digits")
    assert digits.name == "digits"
    image, label, _ = digits[0]
    assert label == 0
    assert np.asarray(image).max() == 15 / 16 * 255 // 1
    assert digits_dataset().labels.bincount().min() == 174


def test_moths_have_species_genera_and_attributes(tmp_path: Path) -> None:
    moths = moths_dataset(tmp_path, species=9, per_species=2, size=16)
    assert (len(moths), moths.num_classes) == (18, 9)
    assert moths.parents is not None
    assert moths.attributes is not None
    assert all(
        name.startswith(moths.parent_names[parent])
        for name, parent in zip(moths.class_names, moths.parents, strict=True)
    )
    assert moths.attributes.values.unique().tolist() == [0, 1]
