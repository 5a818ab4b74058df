"""Which public function each worked case in `fixtures/reference` checks, and with what arguments.

`mapped_cases()` is the list to run an implementation over; `NOT_OFFERED` holds the rest, by the
name of a loss (all its cases) or of a single case, each with its reason.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parents[1] / "fixtures" / "reference"

LATER = "evaluation: mapped when that module exists"

NOT_OFFERED: dict[str, str] = {
    "R1__001": 'form "sum": the print without the mean; log_exp_spread is a log-exp mean',
    "R2__001": 'kind "chord": power_spread takes (1 + cos)/2 only',
    "mhe__001": "squared chords: hyperspherical_energy takes chord lengths",
    "npair_mc__001": "sum over the batch: n_pair_loss is a mean (npair_mc__000 is the same batch)",
    "proxy_nca__002": "without normalization: proxy_nca_loss is on cosines",
    "circle__002": "one softplus over the whole batch: circle_loss is per anchor",
    "nca__001": "self included, as printed: nca_loss leaves the sample itself out",
    "contrastive_hadsell": "unsquared distance in a squared hinge: not a public name",
    "entropy_pair": "pairwise binary entropy: entropy is a kernel-density estimate",
    "dml_da": "a sum of two public functions: tested as such in test_loops.py",
    "retrieval_metrics": LATER,
    "clustering_metrics": LATER,
    "knc": LATER,
    "magnet_sampling": "an index and its batches: test_cluster_index.py, test_compositions.py",
    "attribute_precision": LATER,
}


@dataclass(frozen=True)
class Case:
    """One call: `function(*tensors.values(), **options)`, and what it has to give.

    kind "loss": a scalar `loss` and `grads`, its gradient by the name of the tensor (none where the
    case differentiates otherwise than we do). kind "output": the tensor `output`.
    """

    id: str
    module: str  # "losses", "regularizers", "numerics" or "miners", under kinspace
    function: str
    kind: str
    tensors: dict[str, Tensor]
    options: dict[str, Any]
    loss: float | None = None
    grads: dict[str, Tensor] = field(default_factory=dict)
    output: Tensor | None = None


def mapped_cases() -> list[Case]:
    """Every case that checks a public function, in the order of the index."""
    return [
        case
        for stem in case_names()
        if not_offered(stem) is None
        for case in MAPPINGS[loss_name(stem)](stem)
    ]


def case_names() -> list[str]:
    entries = json.loads((FOLDER / "index.json").read_text())
    return [Path(entry["file"]).stem for entry in entries]


def loss_name(stem: str) -> str:
    return stem.rpartition("__")[0]


def not_offered(stem: str) -> str | None:
    """The reason why no public function is checked by this case, None if one is."""
    return NOT_OFFERED.get(stem, NOT_OFFERED.get(loss_name(stem)))


def read(stem: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The parameters and the arrays of one case."""
    with np.load(FOLDER / f"{stem}.npz") as stored:
        params = json.loads(str(stored["meta"]))["params"]
        arrays = {name: torch.from_numpy(stored[name]) for name in stored if name != "meta"}
    return params, arrays


# --- losses and regularizers: a value and its gradients ------------------------------------------


def loss_mapping(
    module: str, function: str, inputs: dict[str, str], options: dict[str, str], **fixed: Any
) -> Callable[[str], list[Case]]:
    """For a case whose arrays and parameters only have other names than ours.

    inputs: our tensors in call order, each with the name of its array; options: our options, each
    with the name of its parameter; fixed: options that the case takes for granted.
    """

    def build(stem: str) -> list[Case]:
        params, arrays = read(stem)
        return [
            Case(
                id=stem,
                module=module,
                function=function,
                kind="loss",
                tensors={ours: arrays[f"in_{theirs}"] for ours, theirs in inputs.items()},
                options=fixed | {ours: params[theirs] for ours, theirs in options.items()},
                loss=arrays["loss"].item(),
                grads={
                    ours: arrays[f"grad_{theirs}"]
                    for ours, theirs in inputs.items()
                    if f"grad_{theirs}" in arrays
                },
            )
        ]

    return build


def npair_eq1(stem: str) -> list[Case]:
    """Here x_i is the positive and the NEXT sample of its class the anchor, against n_pair_loss.

    In the reversed batch the next sample is the previous one, and the two are the same pairs.
    """
    (case,) = loss_mapping("losses", "n_pair_loss", BATCH, {"norm_weight": "lam"})(stem)
    return [
        replace(
            case,
            tensors={name: tensor.flip(0) for name, tensor in case.tensors.items()},
            grads={name: grad.flip(0) for name, grad in case.grads.items()},
        )
    ]


def almn(stem: str) -> list[Case]:
    (case,) = loss_mapping(
        "losses", "almn_loss", CENTERED, {"beta": "beta", "norm_weight": "lam", "margin": "clip"}
    )(stem)
    params, _ = read(stem)
    assert params["mode"] == "theta_const"
    return [replace(case, options=case.options | {"margin": MARGINS[params["clip"]]})]


def log_exp_spread(stem: str) -> list[Case]:
    """The margin of the mean form is an additive constant, which log_exp_spread leaves out."""
    (case,) = loss_mapping(
        "regularizers", "log_exp_spread", {"centers": "P"}, {"sharpness": "gamma"}
    )(stem)
    params, arrays = read(stem)
    return [replace(case, loss=arrays["loss"].item() + params["delta"])]


def uniformface(stem: str) -> list[Case]:
    """Without the offset it is the mean reciprocal chord: hyperspherical energy of power 1."""
    params, _ = read(stem)
    if params["offset"] == 0.0:
        return loss_mapping(
            "regularizers", "hyperspherical_energy", {"centers": "P"}, {}, power=1.0
        )(stem)
    assert params["offset"] == 1.0
    return loss_mapping("regularizers", "uniform_spread", {"centers": "P"}, {})(stem)


def magnet(stem: str) -> list[Case]:
    """With the variance held constant only the value is ours: we differentiate through it."""
    (case,) = loss_mapping(
        "losses",
        "magnet_loss",
        {"embeddings": "R", "clusters": "assign", "cluster_labels": "cluster_class"},
        {"alpha": "alpha", "eps": "eps"},
    )(stem)
    params, _ = read(stem)
    return [replace(case, grads={}) if params["detach_var"] else case]


def ncm(stem: str) -> list[Case]:
    """A value of mapped inputs and means; test_exactness.py has its gradient by the map."""
    _, arrays = read(stem)
    tensors = {
        "embeddings": arrays["in_X"] @ arrays["in_W"].T,
        "labels": arrays["in_y"],
        "means": arrays["in_means"] @ arrays["in_W"].T,
    }
    return [Case(stem, "losses", "ncm_loss", "loss", tensors, {}, loss=arrays["loss"].item())]


def multi_similarity(stem: str) -> list[Case]:
    (case,) = loss_mapping(
        "losses",
        "multi_similarity_loss",
        BATCH,
        {"alpha": "alpha", "beta": "beta", "base": "lam", "mining_margin": "eps"},
    )(stem)
    params, _ = read(stem)
    return [case if params["mining"] else replace(case, options=case.options | NO_MINING)]


# --- outputs without a gradient ------------------------------------------------------------------


def update_centers(stem: str) -> list[Case]:
    params, arrays = read(stem)
    tensors = {
        "centers": arrays["in_C"],
        "embeddings": arrays["in_X"],
        "labels": arrays["in_y"],
    }
    options = {"rate": params["alpha"]}
    return [
        Case(
            stem,
            "losses",
            "update_centers",
            "output",
            tensors,
            options,
            output=arrays["out_C_new"],
        )
    ]


def virtual_points(stem: str) -> list[Case]:
    params, arrays = read(stem)
    tensors = {name: arrays[f"in_{theirs}"] for name, theirs in CENTERED.items()}
    options = {"beta": params["beta"], "margin": MARGINS[params["clip"]]}
    return [
        Case(stem, "losses", "virtual_points", "output", tensors, options, output=arrays["out_xg"])
    ]


def skewed_means(stem: str) -> list[Case]:
    params, arrays = read(stem)
    sharpness = params["lam"]
    calls = [
        ("k_skewed_mean", {"k": k}, expected)
        for k, expected in zip(params["Ks"], arrays["out_k_mean"], strict=True)
    ]
    calls.append(("log_exp_mean", {"sharpness": sharpness}, arrays["out_logexp_e"]))
    base_two = {"sharpness": sharpness * math.log(2.0)}
    calls.append(("log_exp_mean", base_two, arrays["out_logexp_2"]))
    calls.append(("power_mean", {"power": sharpness}, arrays["out_power"]))
    values = {"values": arrays["in_s"]}
    return [
        Case(
            f"{stem}-{name}-{', '.join(f'{value:.4g}' for value in options.values())}",
            "numerics",
            name,
            "output",
            values,
            options,
            output=expected,
        )
        for name, options, expected in calls
    ]


def distance_weights(stem: str) -> list[Case]:
    params, arrays = read(stem)
    tensors = {"embeddings": arrays["in_X"], "labels": arrays["in_y"]}
    return [
        Case(
            f"{stem}-anchor-{anchor}",
            "miners",
            "distance_weights",
            "output",
            tensors,
            {"anchor": anchor, **params},
            output=expected,
        )
        for anchor, expected in enumerate(arrays["out_W"])
    ]


# --- the mappings --------------------------------------------------------------------------------

BATCH = {"embeddings": "X", "labels": "y"}
CENTERED = {**BATCH, "centers": "C"}
PROXIED = {**BATCH, "proxies": "P"}
MARGINS = {"clip": "clipped", "abs": "printed"}
NO_MINING: dict[str, Any] = {"mining_margin": None}

MAPPINGS: dict[str, Callable[[str], list[Case]]] = {
    "npair_eq1": npair_eq1,
    "npair_mc": loss_mapping("losses", "n_pair_loss", BATCH, {}),
    "center_npair": loss_mapping("losses", "almn_loss", CENTERED, {"norm_weight": "lam"}, beta=0.0),
    "almn": almn,
    "lsoftmax_like": loss_mapping(
        "losses", "fixed_margin_loss", CENTERED, {"multiplier": "m", "norm_weight": "lam"}
    ),
    "R1": log_exp_spread,
    "R2": loss_mapping("regularizers", "power_spread", {"centers": "P"}, {"power": "lam"}),
    "mhe": loss_mapping("regularizers", "hyperspherical_energy", {"centers": "P"}, {"power": "s"}),
    "uniformface": uniformface,
    "proxy_anchor": loss_mapping(
        "losses", "proxy_anchor_loss", PROXIED, {"alpha": "alpha", "margin": "delta"}
    ),
    "magnet": magnet,
    "nra": loss_mapping(
        "losses",
        "nra_loss",
        BATCH,
        {"alpha": "alpha", "eps": "eps", "detach_range": "minmax_const"},
    ),
    "da_contrastive": loss_mapping(
        "losses", "contrastive_loss", BATCH, {"margin": "m_p", "reduction": "reduction"}
    ),
    "da_triplet": loss_mapping(
        "losses", "triplet_loss", BATCH, {"margin": "m_t", "reduction": "reduction"}, mining="all"
    ),
    "triplet_batch_hard": loss_mapping(
        "losses",
        "triplet_loss",
        BATCH,
        {"margin": "margin", "squared": "squared"},
        mining="batch_hard",
    ),
    "triplet_semihard": loss_mapping(
        "losses",
        "triplet_loss",
        BATCH,
        {"margin": "margin", "squared": "squared"},
        mining="semi_hard",
    ),
    "density_eq6": loss_mapping("regularizers", "density", {**BATCH, "targets": "target"}, {}),
    "density_eq8": loss_mapping(
        "regularizers",
        "density",
        {**BATCH, "targets": "target", "original": "d0"},
        {"eta": "eta"},
    ),
    "gor": loss_mapping("regularizers", "orthogonal", BATCH, {}),
    "entropy_kde": loss_mapping("regularizers", "entropy", {"embeddings": "X"}, {"bandwidth": "h"}),
    "lifted_structure": loss_mapping("losses", "lifted_structure_loss", BATCH, {"margin": "alpha"}),
    "angular": loss_mapping("losses", "angular_loss", BATCH, {"degrees": "alpha_deg"}),
    "proxy_nca": loss_mapping(
        "losses",
        "proxy_nca_loss",
        PROXIED,
        {"scale": "scale", "positive_in_denominator": "include_positive"},
    ),
    "multi_similarity": multi_similarity,
    "circle": loss_mapping("losses", "circle_loss", BATCH, {"margin": "m", "scale": "gamma"}),
    "margin": loss_mapping(
        "losses",
        "margin_loss",
        {"embeddings": "X", "triplets": "triplets"},
        {"margin": "alpha", "boundary": "beta"},
    ),
    "softmax_ce": loss_mapping("losses", "softmax_loss", {**BATCH, "weight": "W", "bias": "b"}, {}),
    "histogram": loss_mapping("losses", "histogram_loss", BATCH, {"bins": "bins"}),
    "nca": loss_mapping("losses", "nca_loss", BATCH, {}),
    "ncm": ncm,
    "center_update": update_centers,
    "almn_intermediates": virtual_points,
    "skewed_means": skewed_means,
    "distance_weights": distance_weights,
}
