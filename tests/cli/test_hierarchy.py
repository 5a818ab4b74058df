"""kinspace hierarchy."""

import json
from pathlib import Path

import pytest

from command_line import run
from digit_runs import write_digits


def test_trains_evaluates_and_continues(tmp_path: Path) -> None:
    photos = write_digits(tmp_path / "photos", each=8)
    small = ["model.options={width=4, size=16}", "transform.size=16", "transform.resize=18"]
    sets = [word for text in small for word in ("--set", text)]
    out = tmp_path / "run"
    options = ["--method", "triplet", "--steps", 3, "--device", "cpu", "--json", "-o", out]
    found = json.loads(run("hierarchy", photos, *sets, *options))
    assert set(found["errors"]) == {"model", "untrained", "pixels"}
    assert (out / "hierarchy.json").is_file()
    assert "has a run already" in run("hierarchy", photos, "-o", out, code=2)
    quick = [*sets, *options[:-2]]
    again = json.loads(run("hierarchy", photos, *quick, "-o", out, "--resume"))
    assert again["errors"] == found["errors"]
    said = run("hierarchy", photos, *sets, *options[:6], "-o", out, "--resume")
    assert "photos: trained on 5 merged classes, made of 10 true classes; 20 test pictures" in said
    assert "evaluating: pixels" in said
    assert "a run of kinspace hierarchy, on merged classes" in run("evaluate", out, code=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--split", "zero_shot"], "split: expected one of 'stratified', 'official'"),
        (["--split", "official"], "has no official parts"),
        (["--method", "magnit"], "did you mean 'magnet'?"),
        (["--set", "validation.fraction=0.2"], "no class is held out here"),
        (["--set", "loss.nope=1"], "unknown option of magnet 'nope'"),
        (["--resume"], "resume: expected the run folder"),
    ],
)
def test_refuses_invalid_input_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in run("hierarchy", "digits", *options, code=2)
    assert list(tmp_path.iterdir()) == []
