"""What is particular to each standard set: layouts, parents, attributes, broken files."""

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import standard_copies as copies
from copy_files import idx, lists_and_pictures, shades, shows_its_classes, zip_folder
from kinspace.data.standard import STANDARD_SETS, class_list
from standard_copies import COPIES


def test_cub_gives_a_picture_the_attributes_of_its_class(tmp_path: Path) -> None:
    birds = STANDARD_SETS["cub200"](tmp_path, counts=copies.cub(tmp_path))
    assert birds.attributes is not None
    assert birds.attributes.names == ("attribute 1", "attribute 2", "attribute 3")
    assert birds.attributes.values[:, 0].tolist() == (birds.labels / 4).tolist()
    (tmp_path / "attributes.txt").write_text("1 has_bill::long\n2 has_wing::red\n3 has_eye::x y\n")
    named = STANDARD_SETS["cub200"](tmp_path, counts=None).attributes
    assert named is not None
    assert named.names == ("has_bill=long", "has_wing=red", "has_eye=x y")


def test_cub_is_also_found_in_the_folder_above(tmp_path: Path) -> None:
    counts = copies.cub(tmp_path / "CUB_200_2011")
    assert STANDARD_SETS["cub200"](tmp_path, counts=counts).num_classes == 4


def test_cub_reads_pictures_left_in_two_archives_also_after_a_trip(tmp_path: Path) -> None:
    counts = copies.cub(tmp_path)
    zip_folder(tmp_path / "images", tmp_path / "cub_test.zip", only="003")
    zip_folder(tmp_path / "images", tmp_path / "cub_train.zip")
    birds = STANDARD_SETS["cub200"](tmp_path, counts=counts)
    birds[0]  # opens the archive
    arrived = pickle.loads(pickle.dumps(birds))
    assert shows_its_classes(arrived)
    assert birds.pictures.name(6).startswith("cub_test.zip/003.Sooty_Albatross/")


def test_an_archive_without_some_pictures_is_incomplete(tmp_path: Path) -> None:
    counts = copies.cub(tmp_path)
    next((tmp_path / "images").rglob("Laysan_Albatross_1.jpg")).unlink()
    zip_folder(tmp_path / "images", tmp_path / "birds.zip")
    with pytest.raises(ValueError, match=r"has no images/002.Laysan_Albatross/Laysan.*_1.jpg\."):
        STANDARD_SETS["cub200"](tmp_path, counts=counts)
    (tmp_path / "birds.zip").write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"cannot read .*birds.zip.*Get it from"):
        STANDARD_SETS["cub200"](tmp_path, counts=counts)


@pytest.mark.parametrize("name", ["cars196", "cars196_seen"])
def test_both_layouts_of_cars_hold_the_same_set(name: str, tmp_path: Path) -> None:
    COPIES[name](tmp_path / "first")
    copies.cars_later(tmp_path / "later")
    first, later = (STANDARD_SETS[name](tmp_path / f, counts=None) for f in ("first", "later"))
    assert first.class_names == later.class_names == copies.CARS
    assert shows_its_classes(later)
    assert first.parts is not None
    assert later.parts is not None
    both = [Counter(zip(d.labels.tolist(), d.parts or (), strict=True)) for d in (first, later)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("name", "parents"),
    [
        ("sop", {"1": "bicycle", "2": "cabinet", "3": "bicycle"}),
        (
            "inshop",
            {
                "id_00000001": "MEN/Denim",
                "id_00000002": "WOMEN/Dresses",
                "id_00000003": "WOMEN/Dresses",
            },
        ),
        (
            "aircraft",
            {
                "707-320": "Boeing 707",
                "Cessna 172": "Cessna 172",
                "747-100": "Boeing 747",
                "747-200": "Boeing 747",
            },
        ),
        ("pets", {"Abyssinian": "cat", "american_bulldog": "dog", "Bengal": "cat"}),
        ("omniglot", {name: name.partition("/")[0] for name in copies.CHARACTERS}),
    ],
)
def test_classes_have_their_parents(name: str, parents: dict[str, str], tmp_path: Path) -> None:
    dataset = STANDARD_SETS[name](tmp_path, counts=COPIES[name](tmp_path))
    assert dataset.parents is not None
    named = [dataset.parent_names[parent] for parent in dataset.parents]
    assert dict(zip(dataset.class_names, named, strict=True)) == parents


def test_inshop_may_keep_its_list_and_pictures_in_eval_and_img(tmp_path: Path) -> None:
    counts = copies.inshop(tmp_path / "Img")
    (tmp_path / "Eval").mkdir()
    listed = "list_eval_partition.txt"
    (tmp_path / "Img" / listed).rename(tmp_path / "Eval" / listed)
    shop = STANDARD_SETS["inshop"](tmp_path, counts=counts)
    assert shop.part("query", "gallery").class_names == ("id_00000001", "id_00000003")
    assert shop.pictures.name(0) == "Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg"


def test_the_split_of_flowers_is_by_number(tmp_path: Path) -> None:
    counts = copies.flowers_seen(tmp_path)
    flowers = STANDARD_SETS["flowers102_seen"](tmp_path, counts=counts)
    assert flowers.parts == ("val",) * 4 + ("train",) * 4 + ("test",) * 4
    assert flowers.class_names[0] == "pink primrose"


def test_pets_may_come_as_a_table_and_an_archive_without_the_unlisted(tmp_path: Path) -> None:
    pets = STANDARD_SETS["pets"](tmp_path, counts=copies.pets_table(tmp_path))
    names = [pets.pictures.name(i) for i in range(len(pets))]
    assert names[0] == "pets.zip/images/Abyssinian_1.jpg"
    assert not any("Abyssinian_2" in name for name in names)
    assert shows_its_classes(pets)
    assert pets.parents == (0, 1)


def test_a_broken_idx_file_is_named(tmp_path: Path) -> None:
    counts = copies.mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for data, reason in ((whole[:-20], "cannot be read"), (b"text", "cannot be read")):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=f"{path.name}: {reason}"):
            STANDARD_SETS["mnist"](tmp_path, counts=counts)
    idx(path, np.zeros((3, 2), np.uint8))
    with pytest.raises(ValueError, match="not an idx file of bytes in 3 dimensions"):
        STANDARD_SETS["mnist"](tmp_path, counts=counts)
    idx(path, np.zeros((3, 28, 28), np.uint8))
    with pytest.raises(ValueError, match=r"a label for each of 3 pictures in part 'train'.* 20"):
        STANDARD_SETS["mnist"](tmp_path, counts=counts)


def test_the_file_of_omniglot_is_the_set_in_folders(tmp_path: Path) -> None:
    counts = copies.omniglot_arrays(tmp_path / "omniglot28.npz")
    copies.omniglot(tmp_path / "folders")
    folders = STANDARD_SETS["omniglot"](tmp_path / "folders", counts=counts)
    for root in (tmp_path, tmp_path / "omniglot28.npz"):
        arrays = STANDARD_SETS["omniglot"](root, counts=counts)
        assert arrays.labels.tolist() == folders.labels.tolist()
        for key in ("class_names", "parts", "parents", "parent_names"):
            assert getattr(arrays, key) == getattr(folders, key)
        assert shades(arrays) == shades(folders)


def test_a_class_list_takes_only_its_classes_in_its_order(tmp_path: Path) -> None:
    copies.imagenet_attributes(tmp_path)
    some = class_list(tmp_path / "train", ["n12267677", "n01440764"])
    assert some.class_names == ("n12267677", "n01440764")
    assert some.parts == ("train", "train")
    with pytest.raises(ValueError, match="has no train/lion/, train/tiger/, val/lion/, val/tiger/"):
        class_list(tmp_path, ["n12267677", "lion", "tiger"])


def test_annotated_pictures_of_a_class_list_are_its_test_part(tmp_path: Path) -> None:
    copies.imagenet_attributes(tmp_path)
    name = "n12267677"
    pictures = sorted((tmp_path / "train" / name).iterdir())
    table = tmp_path / "attributes.csv"
    table.write_text(f"path,black,striped\ntrain/{name}/{pictures[0].name},0,1\n")
    found = class_list(tmp_path, [name, "n01693334"])
    test = found.part("test")
    assert len(test) == 1
    assert test.attributes is not None
    assert test.attributes.names == ("black", "striped")
    assert test.attributes.values.tolist() == [[0.0, 1.0]]
    assert len(found.part("train")) == 1
    for text, message in (
        ("path,black\nn1/a.JPEG,1\n", "got 1 others: 'n1/a.JPEG'"),
        (f"path,black\n{name}/{pictures[0].name},2\n", "row 2: expected 1 numbers from 0 to 1"),
        (f"path,black\n{name}/{pictures[0].name},yes\n", "row 2: expected numbers"),
        ("name,black\n", "expected columns path and one an attribute"),
    ):
        table.write_text(text)
        with pytest.raises(ValueError, match=message):
            class_list(tmp_path, [name])


@pytest.mark.parametrize("name", ["cars196", "flowers102", "dogs"])
def test_a_broken_matlab_file_is_named(name: str, tmp_path: Path) -> None:
    counts = COPIES[name](tmp_path)
    path = next(path for path in lists_and_pictures(tmp_path)[0] if path.suffix == ".mat")
    path.write_bytes(b"not a MATLAB file" * 20)
    with pytest.raises(ValueError, match=f"{path.name}: cannot be read as a MATLAB file"):
        STANDARD_SETS[name](tmp_path, counts=counts)


def test_a_list_cut_short_is_named(tmp_path: Path) -> None:
    counts = copies.cub(tmp_path)
    for file, text, message in (
        ("images.txt", "1 a.jpg\n2\n", r"images.txt: line 2: expected 2 fields, got '2'"),
        ("image_class_labels.txt", "1 1\n", r"image_class_labels.txt: expected a line for each"),
        ("classes.txt", "1 x\n", r"classes.txt: expected a line for class 2"),
    ):
        whole = (tmp_path / file).read_text()
        (tmp_path / file).write_text(text)
        with pytest.raises(ValueError, match=message):
            STANDARD_SETS["cub200"](tmp_path, counts=counts)
        (tmp_path / file).write_text(whole)
