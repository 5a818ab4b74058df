"""What was to be reached on real pictures, and whether the numbers that are kept reach it.

    python benchmarks/goals.py

Reads results/reproduce/*.json, the runs behind docs/results.md; each of them has its own command.
Means over seeds, at the last step. A goal that can be read in several ways is here in each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

from report import Check

RESULTS = Path(__file__).parent / "results/reproduce"
SEEDS = 3  # at least


class Table:
    """The runs of a results file."""

    def __init__(self, name: str) -> None:
        content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        self.runs, self.summary = content["runs"], content["summary"]

    def values(self, row: str, measure: str = "recall@1") -> dict[int, float]:
        """In percent, by seed."""
        return {r["seed"]: 100 * r["test"][measure] for r in self.runs if r["row"] == row}

    def mean(self, row: str, measure: str = "recall@1") -> float:
        return fmean(self.values(row, measure).values())

    def rows(self) -> list[str]:
        return list(dict.fromkeys(run["row"] for run in self.runs))

    def steps(self, row: str, goal: str) -> float:
        """How many times fewer this row takes to the last value of the goal's row."""
        own = self.summary[row]["reached"][goal]
        return float(self.summary[goal]["reached"][goal]) / own if own else 0.0


def at_least(text: str, found: float, goal: float) -> Check:
    return Check(f"{text}: at least {goal:g}", found >= goal, f"{found:.2f}")


def above(text: str, better: float, worse: float) -> Check:
    return Check(text, better > worse, f"{better:.2f} and {worse:.2f}")


def gain(text: str, table: Table, row: str, alone: str) -> Check:
    """By more than the gains with the same seeds differ, in standard deviations."""
    with_it, without = table.values(row), table.values(alone)
    gains = [with_it[seed] - without[seed] for seed in with_it]
    detail = f"{fmean(gains):+.2f}, by seed " + ", ".join(f"{each:+.2f}" for each in gains)
    return Check(text, fmean(gains) > stdev(gains), detail)


def almn() -> list[Check]:
    table = Table("almn")
    best, none = table.mean("beta3"), table.mean("beta0")
    return [
        at_least("ALMN, beta 3", best, 52.4),
        at_least("ALMN, beta 3 over beta 0", best - none, 1.5),
    ]


def baselines() -> list[Check]:
    table, printed = Table("baselines"), {"n_pair": 49.1, "triplet": 39.6, "lifted_structure": 47.2}
    return [above(f"{row}: above print", table.mean(row), goal) for row, goal in printed.items()]


def density() -> list[Check]:
    table = Table("density")
    found = [at_least("contrastive with density, d 128", table.mean("contrastive+density"), 55.6)]
    for row in ("contrastive", "n_pair", "triplet"):
        text = f"density helps {row}, in the mean"
        found.append(above(text, table.mean(f"{row}+density"), table.mean(row)))
    return found


def nra() -> list[Check]:
    table = Table("nra")
    rivals = {row: table.mean(row) for row in table.rows() if not row.startswith("nra")}
    next_best = max(rivals, key=rivals.__getitem__)
    own = table.mean("nra")
    text = f"NRA: above every other loss ({len(rivals)}), the next {next_best}"
    return [above("NRA, d 512: above 56", own, 56), above(text, own, rivals[next_best])]


def spread() -> list[Check]:
    table = Table("spread")
    return [
        gain(f"{spread} helps {loss}, beyond its spread", table, f"{loss}+{spread}", loss)
        for loss in ("proxy_nca", "proxy_anchor_2", "proxy_anchor")  # 2: its scale; else 32
        for spread in ("r1", "r2")
    ]


def pets() -> list[Check]:
    """-start: from discriminants of the features, the others from the backbone as it is."""
    table, found = Table("magnet_pets"), []
    for own, rows in (
        ("magnet", ("disjoint", "triplet", "softmax")),
        ("magnet-alone", ("disjoint", "softmax")),
        ("magnet-start", ("disjoint-start", "triplet-start", "softmax-start")),
        ("magnet-start-sharp", ("disjoint-start", "triplet-start", "softmax-start")),
    ):
        for row in rows:
            errors = table.mean(row, "error"), table.mean(own, "error")
            found.append(above(f"error of {own} below that of {row}", *errors))
    for own, goal in (
        # disjoint: the paper's triplets; triplet: all of a batch
        ("magnet-alone", "disjoint"),
        ("magnet-start-sharp", "disjoint-start"),
        ("magnet", "triplet"),  # its first 500 steps are of softmax
        ("magnet-start-sharp", "triplet-start"),
    ):
        text = f"fewer steps of {own}, times, to the end of {goal}"
        found.append(at_least(text, table.steps(own, goal), 5))
    return found


def structure() -> list[Check]:
    found = []
    for kind, measure, lower in (
        ("attributes", "attributes@1", False),
        ("hierarchy", "recovery_error", True),
    ):
        for part in ("", "-cub200_seen"):
            table = Table(f"magnet_{kind}{part}")
            for row in ("triplet", "softmax"):
                pair = table.mean("magnet", measure), table.mean(row, measure)
                better, worse = reversed(pair) if lower else pair
                where = "CUB" if part else "moths"
                word = "below" if lower else "above"
                found.append(above(f"Magnet, {measure}, {where}: {word} {row}", better, worse))
    return found


def mnist() -> list[Check]:
    table = Table("nra_mnist")
    rivals = [table.mean(row, "euclidean_map") for row in table.rows() if row != "nra"]
    return [
        above("MNIST: NRA has the highest mAP", table.mean("nra", "euclidean_map"), max(rivals))
    ]


def best() -> list[Check]:
    return [above("best recipe, one picture: above 61", Table("best").mean("best"), 61)]


def seeds() -> list[Check]:
    """Of the tables on CUB, Pets, MNIST and moths; large batches on moths have one."""
    few = []
    for file in sorted(RESULTS.glob("*.json")):
        table = Table(file.stem)
        if file.stem != "large_batch_moths":
            have = Counter(run["row"] for run in table.runs)
            few += [f"{file.stem}/{row}" for row, count in have.items() if count < SEEDS]
    return [Check(f"every row: {SEEDS} seeds", not few, "; ".join(few))]


GOALS: tuple[Callable[[], list[Check]], ...] = (
    *(almn, baselines, density, nra, spread, pets, structure, mnist, best, seeds),
)


def main() -> None:
    for goal in GOALS:
        for check in goal():
            print(f"{check.verdict:5} {check.text}: {check.detail}".rstrip(": "))


if __name__ == "__main__":
    main()
