"""How the center regularizers and the skewed means belong together (methods.md, section 2).

n = C(C - 1) ordered pairs of centers, d their chords, PM the power mean. `hyperspherical_energy` is
a mean over the pairs, so that MHE, a sum, is n times it.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from batches import random_centers
from kinspace.numerics import k_skewed_mean, log_exp_mean, power_mean
from kinspace.regularizers import (
    LogExpSpread,
    PowerSpread,
    hyperspherical_energy,
    log_exp_spread,
    power_spread,
    uniform_spread,
)

SEEDS = pytest.mark.parametrize("seed", range(5))


def centers_of(seed: int) -> Tensor:
    return random_centers(seed, num_classes=3 + seed, dim=2 + seed)


def chords(centers: Tensor) -> Tensor:
    """The distances between unit centers, ordered pairs, (n,)."""
    directions = centers / centers.norm(dim=1, keepdim=True)
    apart = (directions[:, None] - directions).norm(dim=2)
    return apart[~torch.eye(len(centers), dtype=torch.bool)]


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


# --- the exact relations -------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1.0, 2.0, 0.5, 3.0])
@SEEDS
def test_hyperspherical_energy_is_a_power_of_a_power_mean(seed: int, power: float) -> None:
    """MHE_s = n PM_{-s}(d)^{-s}."""
    centers = centers_of(seed)
    count = len(centers) * (len(centers) - 1)
    energy = count * hyperspherical_energy(centers, power=power)
    same(energy, count * power_mean(chords(centers), -power) ** -power)


@SEEDS
def test_logarithmic_energy_is_the_logarithm_of_the_geometric_mean(seed: int) -> None:
    """MHE_0 = -n log PM_0(d)."""
    centers = centers_of(seed)
    count = len(centers) * (len(centers) - 1)
    energy = count * hyperspherical_energy(centers, power=0.0)
    same(energy, -count * power_mean(chords(centers), 0.0).log())


@SEEDS
def test_the_mean_inverse_chord_is_one_over_the_harmonic_mean(seed: int) -> None:
    """mean(1/d) = 1/PM_{-1}(d)."""
    apart = chords(centers_of(seed))
    same((1 / apart).mean(), 1 / power_mean(apart, -1.0))
    same(hyperspherical_energy(centers_of(seed)), 1 / power_mean(apart, -1.0))


@SEEDS
def test_uniform_spread_is_the_mean_inverse_of_the_chord_plus_one(seed: int) -> None:
    """The paper says lambda = -1 of the chords; that has neither its sign nor the + 1."""
    apart = chords(centers_of(seed))
    same(uniform_spread(centers_of(seed)), (1 / (apart + 1)).mean())
    same(uniform_spread(centers_of(seed)), 1 / power_mean(apart + 1, -1.0))


@SEEDS
def test_the_spreads_are_the_skewed_means_of_the_cosines(seed: int) -> None:
    centers = centers_of(seed)
    directions = centers / centers.norm(dim=1, keepdim=True)
    others = ~torch.eye(len(centers), dtype=torch.bool)
    cosines = (directions @ directions.T)[others].view(len(centers), -1)
    same(log_exp_spread(centers, sharpness=5.0), log_exp_mean(cosines, 5.0).mean())
    same(power_spread(centers, power=3.0), power_mean((1 + cosines.flatten()) / 2, 3.0))


@SEEDS
def test_a_sharp_spread_is_the_mean_of_each_centers_nearest(seed: int) -> None:
    centers = centers_of(seed)
    directions = centers / centers.norm(dim=1, keepdim=True)
    nearest = (directions @ directions.T).fill_diagonal_(-2.0).amax(1)
    found = log_exp_spread(centers, sharpness=1e5)
    torch.testing.assert_close(found, nearest.mean(), rtol=0.0, atol=1e-4)


# --- the means themselves ------------------------------------------------------------------------

positive_values = st.lists(st.floats(0.05, 20.0), min_size=2, max_size=6)
# Not between 0 and 1e-3, where a mean differs from its limit by less than it is rounded.
parameters = st.floats(-30.0, 30.0).map(lambda number: number if abs(number) > 1e-3 else 0.0)
laws = settings(max_examples=50)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@laws
@given(positive_values, parameters, parameters)
def test_both_means_grow_with_their_parameter(
    values: list[float], first: float, second: float
) -> None:
    low, high = sorted([first, second])
    for mean in (log_exp_mean, power_mean):
        smaller, larger = mean(tensor(values), low), mean(tensor(values), high)
        assert smaller <= larger * (1 + 1e-12)


@laws
@given(positive_values, parameters)
def test_both_means_lie_between_the_smallest_and_the_largest(
    values: list[float], parameter: float
) -> None:
    for mean in (log_exp_mean, power_mean):
        found = mean(tensor(values), parameter).item()
        assert min(values) * (1 - 1e-12) <= found <= max(values) * (1 + 1e-12)


@laws
@given(positive_values)
def test_both_means_have_their_limits(values: list[float]) -> None:
    x = tensor(values)
    plain, count = sum(values) / len(values), len(values)
    for mean in (log_exp_mean, power_mean):
        assert mean(x, math.inf) == x.max()
        assert mean(x, -math.inf) == x.min()
        assert math.isclose(mean(x, 1e5), max(values), rel_tol=1e-3)
        assert math.isclose(mean(x, -1e5), min(values), rel_tol=1e-3)
    assert math.isclose(log_exp_mean(x, 0.0), plain)
    assert math.isclose(log_exp_mean(x, 1e-9), plain, rel_tol=1e-6)
    assert math.isclose(power_mean(x, 1.0), plain)
    assert math.isclose(power_mean(x, 0.0), math.prod(values) ** (1 / count))
    assert math.isclose(power_mean(x, -1.0), count / sum(1 / value for value in values))
    assert math.isclose(power_mean(x, 2.0), math.hypot(*values) / math.sqrt(count))


@laws
@given(positive_values)
def test_k_skewed_means_go_from_the_smallest_over_the_mean_to_the_largest(
    values: list[float],
) -> None:
    count = len(values)
    x = tensor(values)
    ordered = [k_skewed_mean(x, k).item() for k in [*range(-1, -count - 1, -1)]]
    ordered += [k_skewed_mean(x, k).item() for k in range(count, 0, -1)]
    assert ordered[0] == min(values)
    assert ordered[-1] == max(values)
    assert math.isclose(ordered[count - 1], ordered[count])  # all of them, from either side
    assert math.isclose(ordered[count], sum(values) / count)
    for smaller, larger in pairwise(ordered):
        assert smaller <= larger * (1 + 1e-12)


@laws
@given(positive_values, parameters)
def test_a_log_exp_mean_is_a_power_mean_of_exponentials(
    values: list[float], parameter: float
) -> None:
    x = tensor(values) / 10
    torch.testing.assert_close(log_exp_mean(x, parameter), power_mean(x.exp(), parameter).log())


# --- what minimizing does to centers -------------------------------------------------------------

Spread = Callable[[Tensor], Tensor]


def nearest_angle(centers: Tensor) -> float:
    """The smallest angle between two centers, in degrees."""
    directions = centers.detach() / centers.detach().norm(dim=1, keepdim=True)
    cosines = (directions @ directions.T).fill_diagonal_(-1.0).clamp(-1.0, 1.0)
    return math.degrees(cosines.max().acos().item())


def after_descent(spread: Spread, seed: int, steps: int = 150) -> tuple[float, float]:
    """The nearest angle of four centers in three dimensions, before and after."""
    centers = random_centers(seed, num_classes=4, dim=3)
    centers /= centers.norm(dim=1, keepdim=True)
    before = nearest_angle(centers)
    centers.requires_grad_()
    optimizer = torch.optim.SGD([centers], lr=0.2)
    for _ in range(steps):
        optimizer.zero_grad()
        spread(centers).backward()
        optimizer.step()
    return before, nearest_angle(centers)


SIMPLEX = math.degrees(math.acos(-1 / 3))  # the widest nearest angle that four directions can have


@pytest.mark.parametrize("spread", [log_exp_spread, power_spread])
def test_minimizing_a_skewed_mean_spreads_the_centers_to_a_simplex(spread: Spread) -> None:
    before, after = after_descent(spread, seed=0)
    assert before < SIMPLEX - 10
    assert abs(after - SIMPLEX) < 0.5


@pytest.mark.parametrize("spread", [hyperspherical_energy, uniform_spread])
def test_minimizing_an_energy_spreads_the_centers(spread: Spread) -> None:
    before, after = after_descent(spread, seed=0)
    assert after > before + 20


@contextlib.contextmanager
def without_the_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def test_minimizing_with_negative_sharpness_collapses_the_centers() -> None:
    with without_the_warning():
        before, after = after_descent(lambda x: log_exp_spread(x, sharpness=-8.0), seed=0)
    assert after < 1.0 < before


def test_minimizing_with_a_power_below_one_collapses_the_centers() -> None:
    with without_the_warning():
        before, after = after_descent(lambda x: power_spread(x, power=0.5), seed=0)
    assert after < 3.0 < before


COLLAPSING: dict[str, Callable[[Tensor], object]] = {
    "log_exp_spread": lambda centers: log_exp_spread(centers, sharpness=-8.0),
    "power_spread": lambda centers: power_spread(centers, power=1.0),
    "LogExpSpread": lambda centers: LogExpSpread(sharpness=-8.0),
    "PowerSpread": lambda centers: PowerSpread(power=0.5),
}


@pytest.mark.parametrize("name", COLLAPSING)
def test_a_collapsing_parameter_is_warned_of_where_it_is_given(name: str) -> None:
    with pytest.warns(
        UserWarning, match=r"(sharpness -8|power 1|power 0\.5) .*collapses"
    ) as caught:
        COLLAPSING[name](torch.eye(3))
    assert [warning.filename for warning in caught] == [__file__]  # no line of the library
