"""A network that embeds many pictures on a CPU: the same numbers, several times as fast.

`inference_network` makes it out of an Embedder in eval mode, which stays as it is. There are three
backends:

    pytorch      the module itself
    fused        a copy in the memory format channels_last, with each batch norm folded into the
                 convolution before it: w' = w g / s, b' = (b - m) g / s + c, for its mean m,
                 deviation s, scale g and shift c (Jacob et al., CVPR 2018, section 3.2)
    onnxruntime  that copy in ONNX Runtime, where it is installed (the extra `onnx`)

The last two cut a batch into parts of few pictures, whose activations stay in the processor's
cache, and compute them side by side, each on a thread of its own: cores that share a convolution
wait for each other after every layer. The caller makes the next batches meanwhile.

`auto` takes `fused` where there is as much to do as in 32 pictures of 224 pixels, and `onnxruntime`
from 256 on, since an export takes a moment. Both are compared with the module on the first
pictures. One that fails, or differs by more than 1e-3 of a vector's length (5e-7 of a cosine),
gives way to the next; `notes` has the reason. The environment variable KINSPACE_INFERENCE names the
backend of every call: `pytorch` switches the others off, and where a named one fails that is an
error. The measurements are in benchmarks/embedding.md.
"""

from __future__ import annotations

import copy
import os
import tempfile
import threading
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from kinspace._core import checks
from kinspace._kernels import use_kernels
from kinspace.models.embedder import Embedder

__all__ = ["BACKENDS", "VARIABLE", "InferenceNetwork", "fuse_batch_norm", "inference_network"]

Embed = Callable[[nn.Module, Tensor], Tensor]
Fast = Callable[[Tensor], Tensor]
BACKENDS = ("auto", "pytorch", "fused", "onnxruntime")
VARIABLE = "KINSPACE_INFERENCE"
_PICTURE = 224 * 224  # pixels
_PART = 4 * _PICTURE  # of a part of a batch
_FROM = {"onnxruntime": 256 * _PICTURE, "fused": 32 * _PICTURE}  # of all pictures together
_AHEAD = 2  # batches that are computed while the caller makes the next
_EXAMPLES = 3  # pictures to compare on
_CLOSE = 1e-3  # of a vector's length


@contextmanager
def inference_network(
    module: nn.Module, *, pictures: int, embed: Embed | None = None, backend: str | None = None
) -> Iterator[InferenceNetwork]:
    """The module as a function of batches, by the fastest backend for this number of pictures.

    embed: what to call, `Embedder.features` say; None: the module itself. backend: one of BACKENDS;
    None: that of the variable KINSPACE_INFERENCE, or else `auto`.

    Only an Embedder in eval mode on the CPU, with pictures in float32, has other backends than
    `pytorch`. Within the `with` statement PyTorch may use one core alone in the thread that calls.

    >>> from kinspace.models import make_embedder
    >>> model = make_embedder({"backbone": {"name": "small"}, "head": {"dim": 8}}).eval()
    >>> with inference_network(model, pictures=2000) as network:
    ...     vectors = network(torch.rand(4, 3, 32, 32))
    >>> vectors.shape, network.backend, network.notes
    (torch.Size([4, 8]), 'fused', ())
    """
    asked = backend or os.environ.get(VARIABLE) or "auto"
    checks.choice(VARIABLE if backend is None else "backend", asked, BACKENDS)
    network = InferenceNetwork(module, asked, pictures, embed or _call)
    threads = torch.get_num_threads()
    try:
        yield network
    finally:
        if network.pool is not None:
            network.pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)


class InferenceNetwork:
    """What `inference_network` gives.

    backend: the one in use, chosen on the first batch. notes: why not another one.
    """

    def __init__(self, module: nn.Module, asked: str, pictures: int, embed: Embed) -> None:
        self.backend: str | None = None
        self.notes: tuple[str, ...] = ()
        self._module, self._asked, self._pictures = module, asked, pictures
        self._embed = embed
        self._fast: Fast | None = None
        self._shape: torch.Size | None = None  # of the pictures that the backend was checked on
        self.pool: ThreadPoolExecutor | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """The vectors of a batch, (batch, dim), without a graph."""
        (vectors,) = self.map([inputs])
        return vectors

    def map(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """The vectors of each batch, in their order; some batches are taken in advance."""
        waiting: deque[list[Future[Tensor]]] = deque()
        for inputs in batches:
            if self.backend is None:
                self._choose(inputs)
            if self._fast is None:
                with torch.no_grad():
                    vectors = self._embed(self._module, inputs)
                yield vectors
                continue
            waiting.append(self._submit(inputs))
            if len(waiting) > _AHEAD:
                yield _joined(waiting.popleft())
        while waiting:
            yield _joined(waiting.popleft())

    def _submit(self, inputs: Tensor) -> list[Future[Tensor]]:
        if self.pool is None:
            self.pool = _single_threads(torch.get_num_threads())
        fast = self._fast
        if fast is None or inputs.shape[1:] != self._shape:
            fast = partial(self._embed, self._module)
        rows = max(1, _PART // _pixels(inputs))
        return [self.pool.submit(_without_graph, fast, part) for part in inputs.split(rows)]

    @torch.no_grad()
    def _choose(self, inputs: Tensor) -> None:
        self.backend, self._shape = "pytorch", inputs.shape[1:]
        problem = _unsuited(self._module, inputs)
        if problem is not None:
            self.notes = (problem,)
            return
        example = inputs[torch.arange(_EXAMPLES) % len(inputs)]
        for name in self._candidates(inputs):
            problem = self._use(name, example)
            if problem is None:
                return
            self.notes += (f"{name}: {problem}",)
        if self._asked in _MADE_BY:
            raise ValueError(
                f"{VARIABLE}: expected a backend that can embed by this model, got "
                f"{'; '.join(self.notes)}; take auto, or pytorch"
            )

    def _candidates(self, inputs: Tensor) -> list[str]:
        """The backends to try, the fastest first."""
        if self._asked != "auto":
            return [name for name in _MADE_BY if name == self._asked]
        work = self._pictures * _pixels(inputs)
        return [name for name in _MADE_BY if work >= _FROM[name]]

    def _use(self, name: str, example: Tensor) -> str | None:
        """Take this backend; or else the reason why not."""
        try:
            fused = fuse_batch_norm(copy.deepcopy(self._module), example[:1], embed=self._embed)
            fast = _MADE_BY[name](fused, self._embed, example)
            expected = self._embed(self._module, example)
            # of one picture too: an export may have taken the batch for a constant
            found = torch.cat([fast(example[:1]), fast(example[1:])])
        # Exporters and other people's backbones raise almost anything.
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        apart = (found - expected).norm(dim=1) / expected.norm(dim=1).clamp_min(1e-12)
        if not bool((apart <= _CLOSE).all()):
            return f"its vectors differ by {float(apart.max()):.1e} of their length"
        self.backend, self._fast = name, fast
        return None


def _call(module: nn.Module, inputs: Tensor) -> Tensor:
    vectors: Tensor = module(inputs)
    return vectors


def _unsuited(module: nn.Module, inputs: Tensor) -> str | None:
    """Why the module has to be called as it is; None where other backends may be tried."""
    if not isinstance(module, Embedder):
        return f"the model is a {type(module).__name__}, no Embedder"
    if module.training:
        return "the model is in training mode"
    if inputs.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return "not in float32 on a CPU"
    if inputs.ndim != 4 or inputs.dtype != torch.float32 or not len(inputs):
        return "the inputs are no pictures in float32"
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return "the model has forward hooks"  # in a copy nobody would hear of their calls
    return None


def _pixels(inputs: Tensor) -> int:
    return inputs.shape[-2] * inputs.shape[-1]


@torch.no_grad()
def fuse_batch_norm(module: nn.Module, example: Tensor, *, embed: Embed | None = None) -> nn.Module:
    """Fold batch norms into the convolutions before them, in place; the module, in eval mode.

    Which convolution is before which batch norm is seen in the pass of an example: those are folded
    that always go together. Where the output of such a convolution is used elsewhere as well, the
    result is wrong: compare.

    >>> images = torch.rand(1, 3, 8, 8)
    >>> module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    >>> before = module(images)
    >>> fused = fuse_batch_norm(module, images)
    >>> fused[1], bool(torch.allclose(fused(images), before, atol=1e-6))
    (Identity(), True)
    """
    names: dict[nn.Module, list[str]] = defaultdict(list)
    for name, part in module.named_modules(remove_duplicate=False):
        names[part].append(name)
    for norm, convolution in _pairs(module, example, embed or _call).items():
        fused = fuse_conv_bn_eval(convolution, norm)
        convolution.weight, convolution.bias = fused.weight, fused.bias
        # timm's batch norms are followed by an activation of their own
        rest = [getattr(norm, name) for name in ("drop", "act") if hasattr(norm, name)]
        after = nn.Sequential(*rest) if rest else nn.Identity()
        for name in names[norm]:
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, after)
    return module


def _pairs(module: nn.Module, example: Tensor, embed: Embed) -> dict[nn.BatchNorm2d, nn.Conv2d]:
    """Each batch norm whose input is always the output of one convolution, its own."""
    made: dict[int, tuple[nn.Module, Tensor]] = {}  # with the tensor, so that its id stays its own
    inputs_of: dict[nn.Module, set[nn.Module | None]] = defaultdict(set)
    users_of: dict[nn.Module | None, set[nn.Module]] = defaultdict(set)

    def after(convolution: nn.Module, _: Any, output: Tensor) -> None:
        made[id(output)] = convolution, output

    def before(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        convolution = made.get(id(inputs[0]), (None,))[0]
        inputs_of[norm].add(convolution)
        users_of[convolution].add(norm)

    hooks = []
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            hooks.append(part.register_forward_hook(after))
        elif _can_be_folded(part):
            hooks.append(part.register_forward_pre_hook(before))
    try:
        embed(module, example)
    finally:
        for hook in hooks:
            hook.remove()
    found = {}
    for norm, convolutions in inputs_of.items():
        (first, *others) = convolutions
        if isinstance(first, nn.Conv2d) and not others and users_of[first] == {norm}:
            assert isinstance(norm, nn.BatchNorm2d)
            found[norm] = first
    return found


def _can_be_folded(part: nn.Module) -> bool:
    if not isinstance(part, nn.BatchNorm2d) or part.training or part.running_mean is None:
        return False
    return type(part) is nn.BatchNorm2d or type(part).__name__ == "BatchNormAct2d"


def _in_channels_last(fused: nn.Module, embed: Embed, _: Tensor) -> Fast:
    fused.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return lambda inputs: embed(fused, inputs.contiguous(memory_format=torch.channels_last))


class _Called(nn.Module):
    """`embed` as the forward pass of a module, for the export."""

    def __init__(self, module: nn.Module, embed: Embed) -> None:
        super().__init__()
        self.module, self._embed = module, embed

    def forward(self, pictures: Tensor) -> Tensor:
        """The vectors."""
        return self._embed(self.module, pictures)


def _in_onnxruntime(fused: nn.Module, embed: Embed, example: Tensor) -> Fast:
    import onnxruntime

    exported = _exported(_Called(fused, embed).eval(), example)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the callers are threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        (vectors,) = session.run(["vectors"], {"pictures": inputs.contiguous().numpy()})
        return torch.from_numpy(vectors)

    return run


def _exported(module: nn.Module, example: Tensor) -> bytes:
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        use_kernels(False),
    ):
        # The exporter by tracing takes 0.3 s for EfficientNet-Lite0, that by torch.export 4 s. It
        # warns of its age, and of sizes it takes for constants, which the comparison would show.
        warnings.simplefilter("ignore")
        file = Path(folder) / "network.onnx"
        torch.onnx.export(
            module,
            (example,),
            file,
            input_names=["pictures"],
            output_names=["vectors"],
            dynamic_axes={"pictures": {0: "batch"}, "vectors": {0: "batch"}},
            dynamo=False,
        )
        return file.read_bytes()


_MADE_BY: dict[str, Callable[[nn.Module, Embed, Tensor], Fast]] = {
    "onnxruntime": _in_onnxruntime,
    "fused": _in_channels_last,
}


@torch.no_grad()
def _without_graph(fast: Fast, inputs: Tensor) -> Tensor:
    return fast(inputs)  # in a thread, which has a grad mode of its own


def _joined(parts: list[Future[Tensor]]) -> Tensor:
    return torch.cat([part.result() for part in parts])


def _single_threads(count: int) -> ThreadPoolExecutor:
    """So many threads, in each of which PyTorch computes on one core."""
    all_there = threading.Barrier(count)

    def alone() -> None:
        torch.set_num_threads(1)
        all_there.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="kinspace-inference")
    for started in [pool.submit(alone) for _ in range(count)]:
        started.result()
    # The calling thread makes batches now: on several cores it would be in the way of the pool.
    torch.set_num_threads(1)
    return pool
