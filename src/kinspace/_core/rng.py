"""Random numbers of a module that go on where they stopped, when its state is restored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinspace._core import checks

__all__ = ["StepGenerator"]


class StepGenerator(nn.Module):
    """A generator for each call, made from the seed and the number of calls in training.

    The number is part of the state, but no buffer: on a GPU each step would wait to read it. The
    generator is the device's own, so a GPU draws other numbers than the CPU.

    >>> first, second = StepGenerator(seed=5), StepGenerator(seed=4)
    >>> second.load_state_dict({"_extra_state": torch.tensor(1)})
    <All keys matched successfully>
    >>> first(torch.device("cpu")).initial_seed() == second(torch.device("cpu")).initial_seed()
    True
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = checks.integer("seed", seed, at_least=0)
        self.calls = 0

    def forward(self, device: torch.device) -> torch.Generator:
        """The generator of this call; in training the next call gets another one."""
        generator = torch.Generator(device).manual_seed(self.seed + self.calls)
        self.calls += self.training
        return generator

    def get_extra_state(self) -> Tensor:
        """The number of calls, a tensor as all else in a state."""
        return torch.tensor(self.calls)

    def set_extra_state(self, state: Tensor) -> None:
        """Continue after so many calls."""
        self.calls = int(state)

    def extra_repr(self) -> str:
        """The seed."""
        return f"seed={self.seed}"
