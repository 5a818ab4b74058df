"""From records to tables, figures and the page; measures against loops."""

import copy
import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kinspace
from digit_experiment import TOML, written
from kinspace.reproduce import read_experiment, results_page
from kinspace.reproduce.jobs import data_name, make_jobs
from kinspace.reproduce.records import Records, curve_of
from kinspace.reproduce.result_figures import experiment_figures
from kinspace.reproduce.results_table import (
    first_step_reaching,
    headings,
    mean_curve,
    mean_spread,
    table_lines,
)
from kinspace.reproduce.run_measures import RunMeasures, classification_errors
from kinspace.reproduce.training_processes import TrainingProcesses
from kinspace.run import Run

KEPT = Path(__file__).parents[2] / "benchmarks/results/reproduce"
RUN: dict[str, Any] = {
    "steps": 20,
    "selected_step": 20,
    "seconds": 60.0,
    "hardware": {"device": "a machine", "torch": "2.x"},
    "commit": "abc",
}


def recorded(folder: Path, name: str, data: str, values: dict[str, list[float]]) -> Records:
    """Results with these values of the first measure: row -> one a seed."""
    experiment = read_experiment(name)
    records = Records(folder, experiment.on(data), data)
    for job in make_jobs(experiment, data, [0, 1, 2]):
        own = values.get(job.row.name, [])
        if job.seed < len(own) and not job.held_out:
            test = {experiment.measures[0]: own[job.seed]}
            records.add(job, {**copy.deepcopy(RUN), "test": test})
    return records


def test_lines_are_a_papers_or_ours_and_never_both(tmp_path: Path) -> None:
    values = {"beta0": [0.501, 0.505, 0.509], "beta3": [0.53]}
    content = recorded(tmp_path, "almn", "cub200", values).to_dict()
    found = table_lines(content)
    assert headings(content)[:3] == ["Recall@1", "Recall@2", "Recall@4"]
    cells = {(line.row, line.source): line.cells[0] for line in found}
    assert cells["ALMN, β = 0", "ALMN, Table 2"] == "50.4"
    assert cells["", "ours, 3 seeds"] == "50.5 ± 0.4"
    assert cells["", "ours, 1 seed"] == "53.0"
    assert cells["ALMN, β = 1", "ALMN, Table 2"] == "52.0"  # not run: the paper's line alone
    ours = [line for line in found if line.source.startswith("ours")]
    assert len(ours) == 2
    assert ours[0].cells[1] == ""  # what was not measured stays empty


def test_another_set_has_its_own_file_and_printed_numbers(tmp_path: Path) -> None:
    records = recorded(tmp_path, "almn", "cars196", {"beta3": [0.7]})
    assert records.path.name == "almn-cars196.json"
    cells = {line.row: line.cells[0] for line in table_lines(records.to_dict()) if line.row}
    assert cells["ALMN, β = 3"] == "71.6"


def test_records_of_other_settings_are_found_whatever_their_seed(tmp_path: Path) -> None:
    records = recorded(tmp_path, "almn", "cub200", {"beta0": [0.5, 0.5, 0.5], "beta1": [0.5]})
    experiment = read_experiment("almn")
    same = make_jobs(experiment, "cub200", records.seeds)
    assert records.others(same) == []
    assert all(records.of(job) for job in same if job.row.name == "beta0" and not job.held_out)
    changes = {"optimizer.lr": 1e-3}
    others = records.others(
        make_jobs(experiment.only(["beta0"]), "cub200", [0, 2], changes=changes)
    )
    assert [(each["row"], each["seed"]) for each in others] == [("beta0", 0), ("beta0", 2)]
    records.drop(others)
    assert [(each["row"], each["seed"]) for each in records.runs] == [("beta0", 1), ("beta1", 0)]


def test_held_out_runs_give_the_validation_and_a_line_of_their_own(tmp_path: Path) -> None:
    experiment = read_experiment("almn")
    records = Records(tmp_path, experiment, "cub200")
    for job in make_jobs(experiment, "cub200", [0])[:2]:
        found = {**RUN, "test": {"recall@1": 0.4 if job.held_out else 0.5}}
        if job.held_out:
            found["validation"] = {"recall@1": 0.6}
        records.add(job, found)
    content = records.to_dict()
    assert content["summary"]["beta0"]["validation"]["mean"] == 0.6
    place = headings(content).index("validation Recall@1")
    table = {line.source: line.cells for line in table_lines(content)}
    assert table["ours, 1 seed"][0] == "50.0"
    assert table["ours, 1 seed"][place] == "60.0"
    assert table["ours, validation classes held out"][0] == "40.0"


def runs_of(command: str, weights: str) -> set[str]:
    """The commands of the runs of a printed `kinspace reproduce` command."""
    name, data, *rest = shlex.split(command)[2:]
    options = list(zip(rest[::2], rest[1::2], strict=True))
    experiment = read_experiment(name).on(data_name(data))
    experiment = experiment.only([value for key, value in options if key == "--only"])
    given = dict(options)
    if "--validate" in given:
        experiment = replace(experiment, validate=float(given["--validate"]))
    jobs = make_jobs(
        experiment,
        data_name(data),
        range(int(given["--seeds"])),
        weights=weights if "--weights" in given else None,
    )
    return {job.command for job in jobs}


def test_the_command_of_a_published_table_makes_its_runs_and_no_others() -> None:
    page = (KEPT.parents[2] / "docs/results.md").read_text(encoding="utf-8")
    printed = re.findall(r"^    (kinspace reproduce .*)$", page, re.MULTILINE)
    files = re.findall(r"reproduce/([a-z0-9_-]+[.]json)", page)
    assert len(printed) == len(files) > 10
    for command, file in zip(printed, files, strict=True):
        runs = json.loads((KEPT / file).read_text(encoding="utf-8"))["runs"]
        assert runs_of(command, "bvlc_googlenet.safetensors") == {r["command"] for r in runs}, file


def test_the_command_of_some_rows_names_them(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "results.md"
    recorded(results, "almn", "cub200", {"beta0": [0.5, 0.5], "beta3": [0.5, 0.5]})
    text = results_page(page, results).read_text(encoding="utf-8")
    [command] = re.findall(r"^    (kinspace reproduce .*)$", text, re.MULTILINE)
    assert command.endswith("--seeds 2 --only beta0 --only beta3 --validate 0")


def test_the_page_has_tables_figures_commands_and_the_words_by_hand(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "docs/results.md"
    sweeps = {f"alpha-{value}": [0.5 + value / 100] for value in range(1, 7)}
    recorded(results, "sweeps", "cub200", sweeps)  # cut short: no figure was drawn
    recorded(results, "almn", "cub200", {"beta0": [0.5, 0.5, 0.5]})
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "docs/results/almn.md").write_text("What did not hold: **nothing**.\n")
    results_page(page, results)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Results")
    assert text.index("## The papers' own pictures") < text.index("### Sweeps")
    assert text.index("### Sweeps") < text.index("## Larger pictures")
    assert text.index("## Larger pictures") < text.index("### ALMN by its margin factor")
    assert "What did not hold: **nothing**." in text
    assert "|  | ours, 3 seeds | 50.0 ± 0.0 |" in text
    assert "    kinspace reproduce almn cub200:FOLDER --seeds 3" in text
    assert "(../results/sweeps-alpha.svg)" in text
    assert (results / "sweeps-alpha.svg").read_text().startswith("<?xml")
    assert json.loads((results / "sweeps.json").read_text())["figures"]
    assert "a machine; torch 2.x; commit abc" in text
    assert "[almn.json](../results/almn.json)" in text
    results_page(page, results)
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_the_numbers_kept_are_of_the_experiments_as_they_are(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    experiment = read_experiment(content["experiment"])
    records = Records(path.parent, experiment, content["data"])
    assert records.path == path
    googlenet = "bvlc_googlenet.safetensors"
    weights = googlenet if googlenet in records.runs[0]["command"] else None
    jobs = make_jobs(experiment, content["data"], records.seeds, weights=weights)
    commands = {(job.row.name, job.seed, bool(job.held_out)): job.command for job in jobs}
    for run in records.runs:  # so the command on the page repeats them
        assert commands[run["row"], run["seed"], bool(run["held_out"])] == run["command"]


def test_a_measure_without_a_number_has_no_column(tmp_path: Path) -> None:
    content = recorded(tmp_path, "best", "cub200", {"best": [0.6]}).to_dict()
    assert headings(content) == ["Recall@1", "steps", "s a run"]
    assert [line.cells[0] for line in table_lines(content)] == ["60.6", "60.0"]


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(ValueError, match=r"a\.json: expected results of `kinspace reproduce`"):
        results_page(tmp_path / "p.md", tmp_path)


def test_figures_have_the_numbers_in_words(tmp_path: Path) -> None:
    content = recorded(
        tmp_path, "sweeps", "cub200", {"batches-65x2": [0.4, 0.5], "batches-26x5": [0.6]}
    ).to_dict()
    [plot] = experiment_figures(read_experiment("sweeps"), content)
    assert plot.name == "batches"
    assert "65x2: 45.0, 26x5: 60.0" in plot.alt
    assert plot.rows[0] == ("65x2", 0.45, pytest.approx(math.sqrt(0.005)))


def test_a_sweep_beside_another_is_drawn_with_it(tmp_path: Path) -> None:
    values = {"alpha-2": [0.4], "alpha-4": [0.5], "alpha_r1-4": [0.6], "proxy_nca": [0.3]}
    content = recorded(tmp_path, "spread", "cub200", values).to_dict()
    [plot] = experiment_figures(read_experiment("spread"), content)
    assert plot.name == "alpha"
    assert "2.0: 40.0, 4.0: 50.0. The same of proxy-anchor with R1: 4.0: 60.0." in plot.alt
    assert "proxy-anchor with R1, test" in plot.svg


def test_curves_and_profiles_and_scatters_are_drawn(tmp_path: Path) -> None:
    content = recorded(tmp_path, "magnet_pets", "pets", {"magnet": [0.1], "triplet": [0.2]})
    for record in content.runs:
        record["curve"] = [[0, 0.9], [50, 0.2], [100, record["test"]["error"]]]
    summary = content.to_dict()["summary"]
    assert summary["magnet"]["reached"] == {"triplet": 50}
    assert summary["triplet"]["reached"] == {"triplet": 50}
    assert "as good as triplet at step" in headings(content.to_dict())
    [plot] = experiment_figures(content.experiment, content.to_dict())
    assert "Magnet, by kNC from 90.0 to 10.0" in plot.alt
    mnist = recorded(tmp_path, "nra_mnist", "mnist", {"nra": [0.9]})
    mnist.runs[0]["points"] = {"x": "1 2 -0.5", "y": "0 1 3", "labels": "0 9 9"}
    [scatter] = experiment_figures(mnist.experiment, mnist.to_dict())
    assert scatter.rows == (("NRA", 3),)
    assert scatter.png[:4] == b"\x89PNG"


def test_a_row_that_starts_as_good_as_another_ends_reaches_it_at_step_0(tmp_path: Path) -> None:
    rows = ("magnet", "magnet-short", "disjoint", "triplet", "softmax", "magnet-start")
    content = recorded(tmp_path, "magnet_pets", "pets", {row: [0.2] for row in rows})
    for record in content.runs:
        first = 0.1 if record["row"] == "magnet-start" else 0.9
        record["curve"] = [[0, first], [50, 0.2]]
    found = content.to_dict()
    cells = {line.row: line.cells for line in table_lines(found)}
    place = headings(found).index("as good as triplet at step")
    assert cells["Magnet, from discriminants, by kNC"][place] == "0"
    # six lines have their names below the plot, and the figure is taller for them
    [many] = experiment_figures(content.experiment, found)
    del content.runs[3:]
    [few] = experiment_figures(content.experiment, content.to_dict())
    height = re.compile(r'height="([0-9.]+)pt"')
    assert float(height.findall(many.svg)[0]) > float(height.findall(few.svg)[0])


def test_mean_and_spread_by_hand() -> None:
    assert mean_spread([]) is None
    found = mean_spread([1.0, 2.0, 6.0])
    assert found == {"mean": 3.0, "spread": pytest.approx(math.sqrt(7.0)), "seeds": 3}
    curves = [{"curve": [[1, 0.5], [2, 0.25]]}, {"curve": [[2, 0.75], [3, 0.1]]}, {}]
    assert mean_curve(curves) == [[2, 0.5, pytest.approx(math.sqrt(0.125))]]
    assert first_step_reaching([[1, 0.5, 0.0]], 0.4, lower=True) is None
    assert first_step_reaching([[1, 0.5, 0.0], [2, 0.7, 0.0]], 0.6, lower=False) == 2


def test_classification_errors_agree_with_a_loop() -> None:
    rng = np.random.default_rng(0)
    names, truth = np.arange(60) % 4 + 3, np.arange(40) % 4 + 3
    means = rng.standard_normal((8, 5))
    known = means[names] + 1.2 * rng.standard_normal((60, 5))
    queries = means[truth] + 1.2 * rng.standard_normal((40, 5))
    weight, bias = rng.standard_normal((4, 5)), rng.standard_normal(4)
    rows = np.array([6, 5, 4, 3])
    found = classification_errors(
        (torch.from_numpy(known), names),
        (torch.from_numpy(queries), truth),
        classifier=(torch.from_numpy(weight), torch.from_numpy(bias), rows),
    )
    centers = {c: known[names == c].mean(0) for c in (3, 4, 5, 6)}
    inertia = sum(((known[names == c] - centers[c]) ** 2).sum() for c in centers)
    variance = inertia / 59
    wrong = dict.fromkeys(("knc", "soft_knn", "nearest_mean", "softmax"), 0)
    for query, true in zip(queries, truth, strict=True):
        near = {c: ((query - center) ** 2).sum() for c, center in centers.items()}
        wrong["nearest_mean"] += min(near, key=near.__getitem__) != true
        wrong["knc"] += min(near, key=near.__getitem__) != true  # one cluster a class
        votes = np.exp(-((known - query) ** 2).sum(1) / (2 * variance))
        soft = {c: votes[names == c].sum() for c in centers}
        wrong["soft_knn"] += max(soft, key=soft.__getitem__) != true
        wrong["softmax"] += rows[int((weight @ query + bias).argmax())] != true
    for name, count in wrong.items():
        assert found[f"{name}_error"] == count / 40, name
    assert 0 < found["soft_knn_error"] < 1


def test_a_curve_has_a_point_for_each_kept_checkpoint(tmp_path: Path) -> None:
    text = TOML.replace("[settings]", '[curve]\nmeasure = "error"\nevery = 5\n[settings]')
    experiment = read_experiment(written(tmp_path, text))
    job = make_jobs(experiment, "digits", [0])[0]
    processes = TrainingProcesses(tmp_path, "digits", keep_every=5)
    assert "--keep-every 5" in " ".join(processes.arguments(job))
    assert "--keep-every" not in processes.arguments(replace(job, held_out=0.5))
    assert "--keep-every" not in TrainingProcesses(tmp_path, "digits").arguments(job)

    class Measured(RunMeasures):
        def curve(self, folder: Path, points: Any, measure: str, *, classifier: str) -> Any:
            names = [path.name for _, path in points[:2]]
            assert names == ["start.safetensors", "step-000005.safetensors"]
            return [(step, step / 100) for step, _ in points]

    folder = tmp_path / job.name / "checkpoints"
    folder.mkdir(parents=True)
    for step in (10, 5, 15):
        (folder / f"step-{step:06}.safetensors").touch()
    assert experiment.curve is not None
    found = curve_of(job, Run(folder.parent), experiment.curve, Measured("digits"))
    assert found == [[0, 0], [5, 0.05], [10, 0.1], [15, 0.15]]
    assert not folder.exists()


def test_more_than_two_dimensions_are_drawn_by_a_map_with_clusters_and_an_attribute(
    tmp_path: Path,
) -> None:
    changes = {"schedule.steps": 2, "warm_start.steps": 2, "validation.fraction": 0.0}
    changes |= {"sampler.clusters": 3, "sampler.samples": 4, "index.clusters": 2}
    run = kinspace.train(
        "digits", method="magnet", changes=changes, out=tmp_path / "run", device="cpu", quiet=True
    )
    found = RunMeasures("digits", device="cpu").points(run.folder, 60)
    assert len(found["x"].split()) == len(found["y"].split()) == len(found["labels"].split()) == 60
    assert len(found["centers_x"].split()) == 2 * len(run.about["classes"]["train"])
    with pytest.raises(ValueError, match="attribute: unknown attribute 'red'; there is none"):
        RunMeasures("digits", device="cpu").points(run.folder, 60, attribute="red")
    experiment = replace(read_experiment("magnet_map"), attribute=None)
    records = Records(tmp_path, experiment, "digits")
    records.runs = [{**RUN, "row": "magnet", "seed": 0, "held_out": 0.0, "command": "", "test": {}}]
    records.runs[0]["points"] = {**found, "marked": " ".join("10" * 30)}
    [plot] = experiment_figures(experiment, records.to_dict())
    assert plot.alt.startswith("60 test samples in two dimensions")


def test_a_curve_of_the_training_loss_has_a_mean_for_every_so_many_steps(tmp_path: Path) -> None:
    changes = {"schedule.steps": 5, "validation.fraction": 0.0, "warm_start.steps": 0}
    run = kinspace.train(
        "digits",
        method="contrastive",
        changes=changes,
        out=tmp_path / "run",
        device="cpu",
        quiet=True,
        log_every=1,
    )
    experiment = read_experiment("almn_printed")
    assert experiment.curve is not None
    curve = replace(experiment.curve, every=2)
    [job, *_] = make_jobs(experiment, "cub200", [0])
    losses = [row["loss"] for row in run.metrics if "loss" in row]
    found = curve_of(job, run, curve, RunMeasures("digits", device="cpu"))
    assert [step for step, _ in found] == [2, 4, 5]
    expected = [sum(losses[:2]) / 2, sum(losses[2:4]) / 2, losses[4]]
    assert [value for _, value in found] == pytest.approx(expected)
