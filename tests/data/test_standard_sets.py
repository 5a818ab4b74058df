"""The laws of all standard sets, on tiny copies in their exact layouts."""

import re
from collections import Counter
from pathlib import Path

import pytest

from copy_files import lists_and_pictures, shows_its_classes
from kinspace.data.standard import STANDARD_SETS
from kinspace.data.standard.source import Counts
from standard_copies import COPIES

PAGE = Path(__file__).parents[2] / "docs/datasets.md"
ZERO_SHOT = [name for name in STANDARD_SETS if f"{name}_seen" in STANDARD_SETS]
ZERO_SHOT += ["sop", "inshop", "omniglot"]
# sets whose lists name their pictures: not folders of what happens to be there, not arrays
LISTED = [*STANDARD_SETS.keys() - {"omniglot", "imagenet_attributes", "mnist", "fashion_mnist"}]


@pytest.fixture(params=STANDARD_SETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_set_has_a_tiny_copy() -> None:
    assert COPIES.keys() == STANDARD_SETS.keys()


def test_the_page_tells_of_every_set() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in STANDARD_SETS if f"`{name}`" not in text] == []


def test_a_copy_loads_with_its_parts_and_the_right_picture_for_each_label(
    name: str, tmp_path: Path
) -> None:
    counts = COPIES[name](tmp_path)
    dataset = STANDARD_SETS[name](tmp_path, counts=counts)
    assert dataset.name == name
    assert dataset.parts is not None
    assert Counter(dataset.parts) == {part: pictures for part, (pictures, _) in counts.items()}
    for part, (_, classes) in counts.items():
        assert dataset.part(part).num_classes == classes
    assert shows_its_classes(dataset)
    assert len({dataset.pictures.name(i) for i in range(len(dataset))}) == len(dataset)


@pytest.mark.parametrize("name", ZERO_SHOT)
def test_a_zero_shot_set_shares_no_class_between_its_parts(name: str, tmp_path: Path) -> None:
    dataset = STANDARD_SETS[name](tmp_path, counts=COPIES[name](tmp_path))
    assert dataset.parts is not None
    held_out = [part for part in dict.fromkeys(dataset.parts) if part != "train"]
    train, test = dataset.part("train"), dataset.part(*held_out)
    assert not set(train.class_names) & set(test.class_names)


def test_wrong_counts_are_an_error_with_expected_and_found(name: str, tmp_path: Path) -> None:
    counts = COPIES[name](tmp_path)
    wrong: Counts = {part: ((n or 0) + 1000, c + 1) for part, (n, c) in counts.items()}
    part, (pictures, classes) = next(iter(counts.items()))
    text = (
        f"expected {(pictures or 0) + 1000:,} pictures of {classes + 1} classes in part {part!r}, "
        f"found {pictures} of {classes}"
    )
    with pytest.raises(ValueError, match=re.escape(text)):
        STANDARD_SETS[name](tmp_path, counts=wrong)


# the copy of ImageNet Attributes has all 90 classes; its pictures are not counted
@pytest.mark.parametrize("name", sorted(STANDARD_SETS.keys() - {"imagenet_attributes"}))
def test_the_official_counts_are_checked_unless_told_otherwise(name: str, tmp_path: Path) -> None:
    COPIES[name](tmp_path)
    with pytest.raises(ValueError, match=r"expected .* found .* not a complete official copy"):
        STANDARD_SETS[name](tmp_path)
    assert len(STANDARD_SETS[name](tmp_path, counts=None)) > 0


def test_each_missing_list_is_named(name: str, tmp_path: Path) -> None:
    counts = COPIES[name](tmp_path)
    for path in lists_and_pictures(tmp_path)[0]:
        if "family" in path.name or "attribute" in path.name:
            continue  # these may be missing
        hidden = path.rename(path.with_name("hidden"))
        with pytest.raises(ValueError, match=f"has no .*{path.stem}.*Expected there.*http"):
            STANDARD_SETS[name](tmp_path, counts=counts)
        hidden.rename(path)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_missing_pictures_are_named_the_first_few_of_many(name: str, tmp_path: Path) -> None:
    counts = COPIES[name](tmp_path)
    pictures = lists_and_pictures(tmp_path)[1]
    pictures[-1].unlink()
    with pytest.raises(ValueError, match=f"has no .*{re.escape(pictures[-1].name)}. Expected"):
        STANDARD_SETS[name](tmp_path, counts=counts)
    for path in pictures[:-1]:
        path.unlink()
    more = rf"has no .*{pictures[0].suffix}" + (
        f" and {len(pictures) - 5} more" if len(pictures) > 5 else ""
    )
    with pytest.raises(ValueError, match=more):
        STANDARD_SETS[name](tmp_path, counts=counts)


def test_an_empty_folder_and_none_at_all_say_where_to_get_the_set(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"has no .*Get it from http"):
        STANDARD_SETS[name](tmp_path)
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere.*Get it from http"):
        STANDARD_SETS[name](tmp_path / "nowhere")


def test_all_missing_lists_come_in_one_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"images.txt.*labels.txt.*split.txt.*classes.txt.*images"):
        STANDARD_SETS["cub200"](tmp_path)
