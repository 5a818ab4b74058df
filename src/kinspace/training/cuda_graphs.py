"""A model's forward and backward pass as CUDA graphs, which launch all kernels with one call.

A small net, or a small batch on a large GPU, waits for the host to launch its kernels. A graph is
recorded once and replayed: on an H200 the `small` backbone at 96 pixels trains 1.8 times as fast.
It holds for one shape of input; other batches (a last, smaller one) run without it. The output and
the gradients are memory of the graph, which the next batch overwrites: gradients of several batches
cannot be accumulated.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from kinspace.training.step import Precision

__all__ = ["Graphed"]


class Graphed(nn.Module):
    """The model, recorded with its first training batch. Shares the model's parameters.

    Only for an Embedder: what another module computes on the host would not be repeated.
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
        # recording runs the model several times: restore what that changes (batch norm)
        kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        try:
            # a cached cast of a weight would be outside of the graph
            with self._precision.autocast(cache=False):
                self._recorded = torch.cuda.make_graphed_callables(
                    _Inner(self.model), (inputs.clone(),), allow_unused_input=True
                )
        except RuntimeError as error:
            warnings.warn(
                f"the model cannot be recorded as a CUDA graph ({error}); it runs without",
                stacklevel=2,
            )
        # the graph has its own stream, about which newer versions of torch warn at each backward
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)
        self.model.load_state_dict(kept)
        for parameter in self.model.parameters():
            parameter.grad = None


class _Inner(nn.Module):
    """Recording replaces the forward of the module it is given: this one, not the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        embeddings: Tensor = self.model(inputs)
        return embeddings
