"""In-Shop Clothes Retrieval of DeepFashion: 52,712 pictures of 7,982 items (Liu et al., 2016).

    list_eval_partition.txt (or in Eval/)   52712
                                            image_name item_id evaluation_status
                                            img/WOMEN/Dresses/id_00000002/02_1_front.jpg ...
    img/ (or Img/img/)

A class is an item; its parent is its category ("WOMEN/Dresses"). The parts are "train", "query"
and "gallery": each test item has pictures in query and in gallery, none in train.
"""

from __future__ import annotations

from kinspace.data.dataset import Dataset
from kinspace.data.standard.annotations import read_rows
from kinspace.data.standard.picture_files import find_pictures
from kinspace.data.standard.source import Counts, Folder, Source, build_dataset

__all__ = ["inshop"]

SOURCE = Source(
    "inshop",
    "In-Shop Clothes Retrieval",
    "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
    "list_eval_partition.txt or Eval/list_eval_partition.txt, img/ or Img/img/",
)
COUNTS: Counts = {
    "train": (25_882, 3_997),
    "query": (14_218, 3_985),
    "gallery": (12_612, 3_985),
}
FILES = {
    "partition": ("list_eval_partition.txt", "Eval/list_eval_partition.txt"),
    "pictures": ("img", "Img/img"),
}


def inshop(root: Folder, *, counts: Counts | None = COUNTS) -> Dataset:
    """The published protocol: train on some items, find the others' gallery pictures by query."""
    folder = SOURCE.find_root(root, "In-shop Clothes Retrieval Benchmark")
    files = SOURCE.find_files(folder, FILES)
    listed = read_rows(files["partition"], 3, skip=2)
    for name, _, part in listed:
        if part not in COUNTS:
            raise ValueError(
                f"{files['partition']}: {name}: expected train, query or gallery, got {part!r}"
            )
    category: dict[str, str] = {}  # of each item
    for name, item, _ in listed:
        category.setdefault(item, "/".join(name.split("/")[1:3]))
    items = sorted(category)
    number = {item: i for i, item in enumerate(items)}
    parent_names = tuple(sorted(set(category.values())))
    inner = "" if files["pictures"].parent == folder else "Img"
    return build_dataset(
        SOURCE,
        find_pictures(SOURCE, folder, [row[0] for row in listed], folder=inner),
        [number[row[1]] for row in listed],
        items,
        [row[2] for row in listed],
        counts,
        parents=tuple(parent_names.index(category[item]) for item in items),
        parent_names=parent_names,
    )
