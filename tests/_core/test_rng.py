"""Random numbers of a module that go on where they stopped."""

import pytest
import torch

from kinspace._core.rng import StepGenerator

CPU = torch.device("cpu")


def draws(rng: StepGenerator, calls: int) -> list[list[float]]:
    return [torch.rand(3, generator=rng(CPU)).tolist() for _ in range(calls)]


def test_each_call_in_training_draws_other_numbers_and_a_seed_repeats_them() -> None:
    found = draws(StepGenerator(seed=3), 4)
    assert len({tuple(numbers) for numbers in found}) == 4
    assert draws(StepGenerator(seed=3), 4) == found
    assert draws(StepGenerator(seed=1000), 4) != found


def test_in_evaluation_the_numbers_repeat_themselves() -> None:
    rng = StepGenerator()
    draws(rng, 2)
    rng.eval()
    first, second = draws(rng, 2)
    assert first == second
    rng.train()
    assert draws(rng, 1) == [first]


def test_a_restored_state_goes_on_with_the_next_numbers() -> None:
    rng, other = StepGenerator(seed=5), StepGenerator(seed=5)
    draws(rng, 3)
    other.load_state_dict(rng.state_dict())
    assert draws(other, 3) == draws(rng, 3)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    draws(StepGenerator(), 2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("wrong", [-1, 1.5, "0", True])
def test_a_seed_is_a_whole_number_from_zero_on(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"^seed: expected"):
        StepGenerator(wrong)
