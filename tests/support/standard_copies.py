"""Tiny copies of the standard sets in their exact layouts, made on disk.

Each maker fills a folder and returns what its parts hold, as a loader's `counts`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.io import savemat

from copy_files import idx, mat_cells, mat_struct, write_lines, write_picture, zip_folder
from kinspace.data.standard import IMAGENET_ATTRIBUTES, Counts

BIRDS = ("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross", "004.Ani")
CARS = ("AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Acura TL Sedan 2012", "Ram C/V 2012")


def _cub(root: Path) -> list[tuple[int, str, bool]]:
    pictures = [
        (label, f"{bird}/{bird[4:]}_{i}.jpg", i > 0)
        for label, bird in enumerate(BIRDS)
        for i in range(3)
    ]
    for label, name, _ in pictures:
        write_picture(root / "images" / name, label)
    numbered = list(enumerate(pictures, 1))
    write_lines(root / "images.txt", *(f"{i} {name}" for i, (_, name, _) in numbered))
    write_lines(
        root / "image_class_labels.txt", *(f"{i} {label + 1}" for i, (label, _, _) in numbered)
    )
    write_lines(root / "train_test_split.txt", *(f"{i} {train:d}" for i, (_, _, train) in numbered))
    write_lines(root / "classes.txt", *(f"{i} {bird}" for i, bird in enumerate(BIRDS, 1)))
    table = root / "attributes/class_attribute_labels_continuous.txt"
    write_lines(table, *(f"{25.0 * label} 100.0 0.0" for label in range(4)))
    return pictures


def cub(root: Path) -> Counts:
    _cub(root)
    return {"train": (6, 2), "test": (6, 2)}


def cub_seen(root: Path) -> Counts:
    _cub(root)
    return {"train": (8, 4), "test": (4, 4)}


def cars_first(root: Path) -> Counts:
    rows = []
    for i in range(8):
        name, label = f"car_ims/{i + 1:06}.jpg", i // 2
        write_picture(root / name, label)
        box = {"bbox_x1": 1, "bbox_y1": 1, "bbox_x2": 5, "bbox_y2": 3}
        rows.append({"relative_im_path": name, **box, "class": label + 1, "test": i % 2})
    savemat(
        root / "cars_annos.mat", {"annotations": mat_struct(rows), "class_names": mat_cells(CARS)}
    )
    return {"train": (4, 2), "test": (4, 2)}


def cars_seen(root: Path) -> Counts:
    cars_first(root)
    return {"train": (4, 4), "test": (4, 4)}


def cars_later(root: Path) -> Counts:
    (root / "devkit").mkdir(parents=True)
    places = {
        "train": root / "devkit/cars_train_annos.mat",
        "test": root / "cars_test_annos_withlabels.mat",
    }
    for part, path in places.items():
        rows = []
        for label in range(4):
            write_picture(root / f"cars_{part}/{label + 1:05}.jpg", label)
            rows.append({"bbox_x1": 1, "class": label + 1, "fname": f"{label + 1:05}.jpg"})
        savemat(path, {"annotations": mat_struct(rows)})
    savemat(root / "devkit/cars_meta.mat", {"class_names": mat_cells(CARS)})
    return {"train": (4, 2), "test": (4, 2)}


def sop(root: Path) -> Counts:
    header = "image_id class_id super_class_id path"
    products = {"train": ((1, 1, "bicycle"), (2, 2, "cabinet")), "test": ((3, 1, "bicycle"),)}
    for part, listed in products.items():
        lines = []
        for class_id, kind_id, kind in listed:
            for i in range(2):
                name = f"{kind}_final/1110{class_id}_{i}.JPG"
                write_picture(root / name, class_id - 1)
                lines.append(f"{2 * class_id + i} {class_id} {kind_id} {name}")
        write_lines(root / f"Ebay_{part}.txt", header, *lines)
    return {"train": (4, 2), "test": (2, 1)}


def inshop(root: Path) -> Counts:
    rows = (
        ("WOMEN/Dresses/id_00000002/02_1_front.jpg", "train"),
        ("WOMEN/Dresses/id_00000002/02_2_side.jpg", "train"),
        ("MEN/Denim/id_00000001/01_1_front.jpg", "query"),
        ("MEN/Denim/id_00000001/01_2_side.jpg", "gallery"),
        ("WOMEN/Dresses/id_00000003/01_1_front.jpg", "query"),
        ("WOMEN/Dresses/id_00000003/01_3_back.jpg", "gallery"),
    )
    lines = []
    for path, part in rows:
        item = path.split("/")[2]
        write_picture(root / "img" / path, int(item[-1]) - 1)
        lines.append(f"img/{path}      {item} {part}")
    header = "image_name item_id evaluation_status"
    write_lines(root / "list_eval_partition.txt", str(len(rows)), header, *lines)
    return {"train": (2, 1), "query": (2, 2), "gallery": (2, 2)}


def _flowers(root: Path) -> None:
    labels = [1, 2, 3, 4] * 3
    for i, label in enumerate(labels, 1):
        write_picture(root / f"jpg/image_{i:05}.jpg", label - 1)
    savemat(root / "imagelabels.mat", {"labels": np.array([labels], np.uint8)})
    split = {"trnid": [[5, 6, 7, 8]], "valid": [[1, 2, 3, 4]], "tstid": [[9, 10, 11, 12]]}
    savemat(root / "setid.mat", {key: np.array(ids, np.uint16) for key, ids in split.items()})


def flowers(root: Path) -> Counts:
    _flowers(root)
    return {"train": (6, 2), "test": (6, 2)}


def flowers_seen(root: Path) -> Counts:
    _flowers(root)
    return {"train": (4, 4), "val": (4, 4), "test": (4, 4)}


def _aircraft(root: Path) -> None:
    variants = (
        ("707-320", "Boeing 707"),
        ("Cessna 172", "Cessna 172"),
        ("747-100", "Boeing 747"),
        ("747-200", "Boeing 747"),
    )
    write_lines(root / "variants.txt", *(variant for variant, _ in variants))
    for i, part in enumerate(("train", "val", "test")):
        ids = [f"{1_000_000 + 10 * i + label:07}" for label in range(4)]
        for label, image in enumerate(ids):
            write_picture(root / f"images/{image}.jpg", label)
        for level, names in zip(("variant", "family"), zip(*variants, strict=True), strict=True):
            lines = (f"{image} {name}" for image, name in zip(ids, names, strict=True))
            write_lines(root / f"images_{level}_{part}.txt", *lines)


def aircraft(root: Path) -> Counts:
    _aircraft(root)
    return {"train": (6, 2), "test": (6, 2)}


def aircraft_seen(root: Path) -> Counts:
    _aircraft(root)
    return {"train": (4, 4), "val": (4, 4), "test": (4, 4)}


def dogs(root: Path) -> Counts:
    breeds = ("n02085620-Chihuahua", "n02085782-Japanese_spaniel")
    for part, each in (("train", 3), ("test", 2)):
        names = [f"{b}/{b[:9]}_{part}{i}.jpg" for b in breeds for i in range(each)]
        labels = [label for label in range(2) for _ in range(each)]
        for name, label in zip(names, labels, strict=True):
            write_picture(root / "Images" / name, label)
        content = {
            "file_list": mat_cells(names, upright=True),
            "annotation_list": mat_cells([name[:-4] for name in names], upright=True),
            "labels": np.array([[label + 1] for label in labels], np.uint8),
        }
        savemat(root / f"{part}_list.mat", content)
    return {"train": (6, 2), "test": (4, 2)}


def pets(root: Path) -> Counts:
    breeds = (("Abyssinian", 1), ("american_bulldog", 2), ("Bengal", 1))
    for part, numbers in (("trainval", (1, 2)), ("test", (3,))):
        lines = []
        for label, (breed, species) in enumerate(breeds):
            for i in numbers:
                write_picture(root / f"images/{breed}_{i}.jpg", label)
                lines.append(f"{breed}_{i} {label + 1} {species} 1")
        write_lines(root / f"annotations/{part}.txt", *lines)
    return {"train": (6, 3), "test": (3, 3)}


def pets_table(root: Path) -> Counts:
    """The copy with labels.csv and a zip, with a picture in neither official list."""
    rows = [
        ("Abyssinian_1", 0, "trainval"),
        ("Abyssinian_2", 0, "unlisted"),
        ("american_bulldog_1", 1, "trainval"),
        ("Abyssinian_3", 0, "test"),
        ("american_bulldog_2", 1, "test"),
    ]
    for name, label, _ in rows:
        write_picture(root / f"images/{name}.jpg", label)
    lines = (f"images/{name}.jpg,{label},{name[:-2]},{part}" for name, label, part in rows)
    write_lines(root / "labels.csv", "path,label_index,class_name,split", *lines)
    zip_folder(root / "images", root / "pets.zip", prefix="images/")
    return {"train": (2, 2), "test": (2, 2)}


def mnist(root: Path) -> Counts:
    for prefix, each in (("train", 2), ("t10k", 1)):
        labels = np.repeat(np.arange(10, dtype=np.uint8), each)
        images = np.broadcast_to((10 + 2 * labels)[:, None, None], (len(labels), 28, 28))
        idx(root / f"{prefix}-images-idx3-ubyte.gz", images.astype(np.uint8))
        idx(root / f"{prefix}-labels-idx1-ubyte", labels)
    return {"train": (20, 10), "test": (10, 10)}


CHARACTERS = ("Greek/character01", "Greek/character02", "Latin/character01", "Angelic/character01")


def omniglot(root: Path) -> Counts:
    for label, name in enumerate(CHARACTERS):
        split = "evaluation" if name.startswith("Angelic") else "background"
        for i in range(1, 3):
            write_picture(root / f"images_{split}" / name / f"{label + 1:04}_{i:02}.png", label)
    return {"train": (6, 3), "test": (2, 1)}


def omniglot_arrays(path: Path) -> Counts:
    labels = np.repeat(np.arange(4, dtype=np.int16), 2)
    images = np.broadcast_to((10 + 2 * labels)[:, None, None], (8, 28, 28)).astype(np.uint8)
    np.savez(
        path,
        images=images,
        labels=labels,
        class_names=np.array(CHARACTERS),
        class_split=np.array(["background"] * 3 + ["evaluation"]),
        class_alphabet=np.array([1, 1, 2, 0], np.int8),
        alphabets=np.array(["Angelic", "Greek", "Latin"]),
    )
    return {"train": (6, 3), "test": (2, 1)}


def imagenet_attributes(root: Path) -> Counts:
    for label, wnid in enumerate((*IMAGENET_ATTRIBUTES, "n01440764")):  # the last is not of them
        write_picture(root / f"train/{wnid}/{wnid}_1.JPEG", label)
        write_picture(root / f"val/{wnid}/ILSVRC2012_val_{label:08}.JPEG", label)
    return {"train": (90, 90), "val": (90, 90)}


COPIES: dict[str, Callable[[Path], Counts]] = {
    "cub200": cub,
    "cub200_seen": cub_seen,
    "cars196": cars_first,
    "cars196_seen": cars_seen,
    "sop": sop,
    "inshop": inshop,
    "flowers102": flowers,
    "flowers102_seen": flowers_seen,
    "aircraft": aircraft,
    "aircraft_seen": aircraft_seen,
    "dogs": dogs,
    "pets": pets,
    "mnist": mnist,
    "fashion_mnist": mnist,
    "omniglot": omniglot,
    "imagenet_attributes": imagenet_attributes,
}
