"""The built-in set `moths`: the same pictures always, and attributes that tell the truth."""

import dataclasses
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kinspace.data import moths
from kinspace.data.moths import (
    Moths,
    contact_sheet,
    disk_cache,
    draw_moth,
    draw_moths,
    load_moths,
    species_catalog,
)
from kinspace.data.moths.attributes import ATTRIBUTE_NAMES, VOCABULARY
from kinspace.data.moths.collection import draw_picture
from kinspace.data.moths.individual import BACKGROUNDS, POSTURES, WEAR
from kinspace.data.moths.scene import paint_moth
from kinspace.data.moths.species_list import MOST_SPECIES
from kinspace.data.moths.wings import angle_of

SPECIES, PICTURES = 8, 3


@pytest.fixture(scope="module")
def drawn() -> Moths:
    return draw_moths(species=SPECIES, per_species=PICTURES)


def same(first: Moths, second: Moths) -> bool:
    return (
        np.array_equal(first.images, second.images)
        and np.array_equal(first.labels, second.labels)
        and (first.class_names, first.genera) == (second.class_names, second.genera)
        and all(np.array_equal(first.columns[c], second.columns[c]) for c in VOCABULARY)
    )


def test_the_collection_has_the_promised_shapes(drawn: Moths) -> None:
    count = SPECIES * PICTURES
    assert drawn.images.shape == (count, 96, 96, 3)
    assert drawn.images.dtype == np.uint8
    assert drawn.labels.tolist() == [c for c in range(SPECIES) for _ in range(PICTURES)]
    assert len(drawn) == count
    assert len(drawn.class_names) == len(drawn.genera) == SPECIES
    assert drawn.attributes.shape == (count, len(drawn.attribute_names))
    assert drawn.attribute_names == ATTRIBUTE_NAMES
    assert {"pattern=banded", "ground color=rust"} <= set(ATTRIBUTE_NAMES)


def test_there_are_120_species_in_30_genera_of_four() -> None:
    catalog = species_catalog()
    assert len({species.name for species in catalog}) == 120
    genera = [species.genus.name for species in catalog]
    assert len(set(genera)) == 30
    assert all(genera.count(name) == 4 for name in genera)
    assert all(species.name.startswith(f"{species.genus.name} ") for species in catalog)


def test_every_possible_species_has_a_name_of_its_own_and_two_to_four_morphs() -> None:
    catalog = species_catalog(MOST_SPECIES)
    assert len({species.name for species in catalog}) == MOST_SPECIES
    for species in catalog:
        names = [morph.name for morph in species.morphs]
        assert 2 <= len(names) <= 4
        assert len(set(names)) == len(names)
        assert names[0] == "typical"


def test_two_workers_draw_what_one_draws(drawn: Moths) -> None:
    assert same(drawn, draw_moths(species=SPECIES, per_species=PICTURES, workers=2))


def test_a_picture_does_not_depend_on_the_rest_of_the_collection(drawn: Moths) -> None:
    few = draw_moths(species=2, per_species=2)
    assert np.array_equal(few.images[:2], drawn.images[:2])
    assert np.array_equal(few.images[2:], drawn.images[PICTURES : PICTURES + 2])
    alone = draw_picture(SPECIES - 1, PICTURES - 1)
    assert np.array_equal(alone.image, drawn.images[-1])


def test_another_seed_draws_other_individuals_of_the_same_species(drawn: Moths) -> None:
    other = draw_moths(species=2, per_species=PICTURES, seed=1)
    assert other.class_names == drawn.class_names[:2]
    assert not np.array_equal(other.images, drawn.images[: 2 * PICTURES])


def test_the_global_generator_is_left_alone() -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    draw_picture(0, 0)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("size", [17, 32, 64, 128])
def test_a_picture_has_the_size_asked_for(size: int) -> None:
    picture = draw_moth(species_catalog(1)[0], np.random.default_rng(0), size=size)
    assert picture.image.shape == (size, size, 3)


def test_pictures_are_neither_flat_nor_burnt_out(drawn: Moths) -> None:
    values = drawn.images.reshape(len(drawn), -1)
    assert values.std(1).min() > 8
    assert ((values == 255).mean(1) < 0.5).all()
    assert ((values == 0).mean(1) < 0.5).all()


def test_the_moth_fills_a_good_part_of_the_picture() -> None:
    for species in species_catalog()[::7]:
        rng = np.random.default_rng(3)
        moth = moths.sample_individual(species, rng)
        _, cover = paint_moth(species, moth, 48, rng).layers()
        assert 0.1 < cover.mean() < 0.75
        assert cover.max() <= 1 + 1e-5


def test_attributes_are_one_word_a_column(drawn: Moths) -> None:
    table, start = drawn.attributes, 0
    for column, words in VOCABULARY.items():
        block = table[:, start : start + len(words)]
        assert (block.sum(1) == 1).all()
        assert [words[i] for i in block.argmax(1)] == drawn.columns[column].tolist()
        start += len(words)
    assert start == table.shape[1]


def test_attributes_agree_with_the_species(drawn: Moths) -> None:
    catalog = species_catalog(SPECIES)
    for i, label in enumerate(drawn.labels.tolist()):
        words, species = drawn.describe(i), catalog[label]
        assert words["species"] == species.name
        assert words["genus"] == species.genus.name
        assert words["pattern"] == species.genus.pattern
        assert words["wing shape"] == species.genus.shape
        assert words["antennae"] == species.genus.antennae
        assert words["eyespots"] == str(species.eyespots)
        assert words["fringe"] == species.fore.fringe
        morph = next(morph for morph in species.morphs if morph.name == words["morph"])
        assert words["ground color"] == morph.ground
        hindwing = morph.ground if species.similar else species.hindwing
        assert words["hindwing color"] == hindwing


def test_every_species_can_be_described_in_the_vocabulary() -> None:
    for species in species_catalog(MOST_SPECIES):
        for morph in species.morphs:
            moth = moths.sample_individual(species, np.random.default_rng(0))
            words = moths.describe(species, dataclasses.replace(moth, morph=morph))
            assert all(words[column] in VOCABULARY[column] for column in words)
            assert words.keys() == VOCABULARY.keys()


def test_backgrounds_postures_and_wear_all_occur() -> None:
    species, rng = species_catalog(5)[-1], np.random.default_rng(0)
    seen = [moths.sample_individual(species, rng) for _ in range(200)]
    assert {moth.background for moth in seen} == set(BACKGROUNDS)
    assert {moth.pose.posture for moth in seen} == set(POSTURES)
    assert {moth.wear for moth in seen} == set(WEAR)
    assert {moth.morph for moth in seen} == set(species.morphs)


def paint(number: int, morph: int = 0, size: int = 32) -> np.ndarray:
    """The moth alone, every species and morph in the same pose and light."""
    species = species_catalog(number + 1)[number]
    moth = moths.sample_individual(species_catalog(1)[0], np.random.default_rng(5))
    moth = dataclasses.replace(moth, morph=species.morphs[morph], wear="fresh")
    color, _ = paint_moth(species, moth, size, np.random.default_rng(0)).layers()
    return color


def test_no_two_species_look_the_same() -> None:
    pictures = [paint(number) for number in range(120)]
    closest = min(
        np.abs(pictures[a] - pictures[b]).mean()
        for genus in range(0, 120, 4)
        for a, b in itertools.combinations(range(genus, genus + 4), 2)
    )
    assert closest > 0.01
    assert len({picture.tobytes() for picture in pictures}) == 120


@pytest.mark.parametrize("number", [0, 9, 26, 41, 77, 118])
def test_morphs_of_a_species_differ(number: int) -> None:
    count = len(species_catalog(number + 1)[number].morphs)
    pictures = [paint(number, morph) for morph in range(count)]
    for first, second in itertools.combinations(pictures, 2):
        apart = np.abs(first - second).max(2)
        assert (apart > 0.08).sum() > 0.03 * (first > 0).any(2).sum()


def test_the_quick_angle_is_close_to_arctan2() -> None:
    turn = np.linspace(-1.57, 1.57, 400, dtype=np.float32)
    away = np.float32(0.4)
    angle = angle_of(away * np.sin(turn), away * np.cos(turn), np.full_like(turn, away))
    assert np.abs(angle - turn).max() < 2e-3


def test_the_cache_gives_back_what_was_drawn(tmp_path: Path, drawn: Moths) -> None:
    options = {"species": SPECIES, "per_species": PICTURES}
    assert same(load_moths(tmp_path, **options), drawn)
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    assert same(load_moths(tmp_path, **options), drawn)
    assert file.stat().st_mtime_ns == written


@pytest.mark.parametrize("damage", ["empty", "text", "half", "one byte"])
def test_a_broken_cache_is_made_anew(tmp_path: Path, damage: str) -> None:
    options = {"species": 1, "per_species": 2, "size": 24}
    first = load_moths(tmp_path, **options)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    flipped = whole[:500] + bytes([whole[500] ^ 255]) + whole[501:]  # among the pictures
    broken = {"empty": b"", "text": b"no zip", "half": whole[: len(whole) // 2]}
    file.write_bytes(broken.get(damage, flipped))
    assert same(load_moths(tmp_path, **options), first)
    assert file.stat().st_size == len(whole)


def test_a_cache_of_another_collection_under_the_same_name_is_not_taken(tmp_path: Path) -> None:
    load_moths(tmp_path, species=1, per_species=2, size=24)
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / file.name.replace("24px", "32px"))
    assert load_moths(tmp_path, species=1, per_species=2, size=32).images.shape == (2, 32, 32, 3)


def test_parameters_and_generator_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"species": 1, "per_species": 1, "size": 24}
    load_moths(tmp_path, **options)
    load_moths(tmp_path, **options, seed=1)
    load_moths(tmp_path, **{**options, "size": 25})
    monkeypatch.setattr(disk_cache, "GENERATOR", disk_cache.GENERATOR + 1)
    load_moths(tmp_path, **options)
    assert len(list(tmp_path.iterdir())) == 4


def test_other_pictures_ask_for_another_generator_number() -> None:
    """When this fails, count up `GENERATOR` (old caches are stale) and put in the new means."""
    means = [draw_picture(number, 0, size=48).image.mean() for number in (0, 37, 74, 111)]
    assert disk_cache.GENERATOR == 2
    assert means == pytest.approx([157.4, 151.7, 67.7, 78.7], abs=0.3)


def test_the_default_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_moths(species=1, per_species=1, size=24)
    assert [path.suffix for path in (tmp_path / "kinspace").iterdir()] == [".npz"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", os.fspath(tmp_path / "home"))
    assert disk_cache.cache_folder() == tmp_path / "home" / ".cache" / "kinspace"


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        load_moths(tmp_path, species=1, per_species=1, size=24)
    assert list(tmp_path.iterdir()) == []


def test_the_contact_sheet_is_a_picture_of_all_its_moths(tmp_path: Path) -> None:
    file = contact_sheet(tmp_path / "sheet.png", genera=[2, 5], per_species=1, size=32)
    with Image.open(file) as sheet:
        assert sheet.format == "PNG"
        assert sheet.height >= 2 * 32
        assert sheet.width >= 4 * 32
        values = np.asarray(sheet)
    picture = draw_picture(8, 0, size=32).image
    assert np.array_equal(values[1:33, 1:33], picture)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"species": 0}, "species: expected at least 1, got 0"),
        ({"species": MOST_SPECIES + 1}, f"species: expected at most {MOST_SPECIES}"),
        ({"per_species": 0}, "per_species: expected at least 1, got 0"),
        ({"size": 4}, "size: expected at least 16, got 4"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_moths(**{"species": 1, "per_species": 1, **options})
