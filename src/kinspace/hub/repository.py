"""A run folder as a model repository: made, pushed to the Hugging Face Hub, and fetched from it.

config.json is run.json without what only concerns the machine it was made on: paths, and the names
of unreadable files. With model.safetensors it is all that `kinspace.load` needs. No file
of a repository can run code.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kinspace._core.atomic_files import write_json
from kinspace.hub.model_card import model_card
from kinspace.inference.loader import chosen_weights
from kinspace.inference.model import THRESHOLDS
from kinspace.models.pretrained_weights import quick_offline
from kinspace.run import CONFIG, Run, open_run
from kinspace.search.gallery import FILE

__all__ = ["fetch_repository", "is_repository_name", "push_to_hub", "save_repository"]

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # of a repository, user/model
MACHINE = ("working_folder", "contents", "given", "columns", "evaluated_by")
MACHINE_SETTINGS = ("device", "workers", "cache")
COPIED = ("model.safetensors", "recipe.toml", "results.json", "selection.json", THRESHOLDS)


def is_repository_name(name: str) -> bool:
    """Whether a text may be the name of a repository on the Hub, and no path that is here.

    >>> is_repository_name("user/photos"), is_repository_name("./runs/photos")
    (True, False)
    """
    return bool(NAME.fullmatch(name)) and not Path(name).parent.exists()


def save_repository(
    run: Run | str | Path,
    folder: str | Path,
    *,
    name: str | None = None,
    license: str | None = None,  # noqa: A002 - as the Hub calls it
    gallery: bool = False,
) -> Path:
    """Write a run as a model repository into a new or empty folder; returns the folder.

    name: what the model card says to load; by default the folder. license: as for `push_to_hub`.
    gallery: with the gallery, which has the vectors, classes and file names of your pictures.
    """
    run, folder = run if isinstance(run, Run) else open_run(run), Path(folder)
    weights = chosen_weights(run.folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: expected a new or empty folder, got one with files, or a file")
    if gallery and not run.indexed:
        raise ValueError(
            f"gallery: expected one in {run.folder}, got none; make it: kinspace index {run.folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CONFIG, _public(run))
    for file in (*COPIED, *((FILE,) if gallery else ())):
        source = weights if file == weights.name else run.folder / file
        if source.exists():
            shutil.copyfile(source, folder / file)
    card = model_card(run, name=name or str(folder), license=license)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


def push_to_hub(
    run: Run | str | Path,
    name: str,
    *,
    license: str | None = None,  # noqa: A002 - as the Hub calls it
    gallery: bool = False,
    private: bool = True,
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Push a run to the Hugging Face Hub as the model `name`, "user/model"; returns its address.

    license: an identifier of the Hub for the model card, "mit". gallery: push the gallery too; it
    has the vectors, classes and file names of your pictures. private: of a repository that is new.
    token: by default that of `hf auth login` or HF_TOKEN. endpoint: of another hub than HF_ENDPOINT
    or huggingface.co.
    """
    if NAME.fullmatch(name) is None:
        raise ValueError(f"name: expected user/model, got {name!r}")
    hub = _hub()
    with TemporaryDirectory() as temporary:
        folder = save_repository(
            run, Path(temporary) / "model", name=name, license=license, gallery=gallery
        )
        api = hub.HfApi(endpoint=endpoint, token=token)
        try:
            address = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message="Model of kinspace")
        except (OSError, hub.errors.HfHubHTTPError, hub.errors.LocalTokenNotFoundError) as error:
            raise ValueError(f"{name}: could not be pushed: {_first_line(error)}") from None
    return str(address)


def fetch_repository(
    name: str, *, revision: str | None = None, endpoint: str | None = None
) -> Path:
    """The folder with the files of a model on the Hub; they are fetched once and kept.

    revision: a branch, tag or commit; None: the main branch.
    """
    hub = _hub()
    try:
        with quick_offline():
            found = hub.snapshot_download(
                name,
                revision=revision,
                endpoint=endpoint,
                allow_patterns=[CONFIG, *COPIED, FILE, "README.md"],
            )
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        raise ValueError(f"{name}: could not be fetched: {_first_line(error)}") from None
    if not (Path(found) / CONFIG).exists():
        raise ValueError(f"{name}: expected a model of kinspace, got a repository without {CONFIG}")
    return Path(found)


def _public(run: Run) -> dict[str, Any]:
    """What config.json says of a run."""
    about = {key: value for key, value in run.about.items() if key not in MACHINE}
    about["data"] = Path(str(about["data"])).name
    about["skipped"] = []
    settings = about["settings"].items()
    about["settings"] = {key: value for key, value in settings if key not in MACHINE_SETTINGS}
    return about


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise ValueError("huggingface_hub is not installed; pip install 'kinspace[hub]'") from None
    return huggingface_hub


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
