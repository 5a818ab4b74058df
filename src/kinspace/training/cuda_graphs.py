"""A model's forward and backward pass as CUDA graphs: launched as a whole, not kernel by kernel.

A small net, or a small batch on a large GPU, waits for the host that launches its kernels. A graph
is recorded once and replayed with one call: on an H200 our small net at 96 pixels trains 1.8 times
as fast. It is for one shape of input; other batches (a last, smaller one) go through the model as
it is. The output is the graph's own memory, and so are the gradients: the next batch overwrites
them, so that gradients of several batches do not add up.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from kinspace.training.step import Precision

__all__ = ["Graphed"]


class Graphed(nn.Module):
    """The model, recorded with the first batch it is given in training. Shares its parameters.

    For models of ours: what a user's module does on the host in each pass would not be repeated.
    """

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self._precision = precision
        self._shape: torch.Size | None = None
        self._recorded: Any = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Embeddings of a batch."""
        if self._shape is None:
            self._shape = inputs.shape
            self._record(inputs)
        alike = self._recorded is not None and inputs.shape == self._shape
        embeddings: Tensor = self._recorded(inputs) if alike else self.model(inputs)
        return embeddings

    def _record(self, inputs: Tensor) -> None:
        # recording runs the model some times: what that moves (batch norm) is put back
        kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        try:
            # a cast of a weight that is kept for later would be outside of the graph
            with self._precision.autocast(cache=False):
                self._recorded = torch.cuda.make_graphed_callables(
                    _Inner(self.model), (inputs.clone(),), allow_unused_input=True
                )
        except RuntimeError as error:
            warnings.warn(
                f"the model cannot be recorded as a CUDA graph ({error}); it runs as it is",
                stacklevel=2,
            )
        # recorded on a stream of its own: newer versions of torch warn at each later backward
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)
        self.model.load_state_dict(kept)
        for parameter in self.model.parameters():
            parameter.grad = None


class _Inner(nn.Module):
    """Holds the model: recording replaces the forward of the module it is given, here this one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        embeddings: Tensor = self.model(inputs)
        return embeddings
