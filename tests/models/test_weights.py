"""Pretrained weights: fetched from a hub over HTTP, and found where torchvision keeps them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save

from kinspace.models import make_backbone

MODEL = "resnet10t"


@contextmanager
def hub(files: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """A hub on this machine that has these files, by path: its address and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(f"{self.command} {self.path}")
            content = files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(len(content or b"")))
            if content is None:
                self.send_header("X-Error-Code", "EntryNotFound")
            else:
                self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(files.get(self.path, b""))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_weights_of_timm_are_fetched_from_the_hub(tmp_path: Path) -> None:
    config = timm.get_pretrained_cfg(MODEL)
    assert config is not None
    torch.manual_seed(3)
    weights = timm.create_model(MODEL, pretrained=False).state_dict()
    path = f"/{config.hf_hub_id}/resolve/main/model.safetensors"
    with hub({path: save(weights)}) as (address, asked):
        # the hub's address is read when its library is imported, so this takes a new process
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
        environment |= {"HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        code = f"""
import sys
import torch
from kinspace.models import make_backbone
made = make_backbone("timm:{MODEL}", pretrained=True)
torch.save(made.state_dict(), sys.argv[1])
"""
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "made.pt")],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"GET {path}" in asked
    made = torch.load(tmp_path / "made.pt", weights_only=True)
    same = [key for key in weights if any(torch.equal(weights[key], v) for k, v in made.items()
            if k.endswith(key))]  # fmt: skip
    cut = [key for key in weights if key not in same]
    assert cut == ["fc.weight", "fc.bias"]  # the classifier: no part of a backbone


def test_weights_of_torchvision_are_taken_from_where_it_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    torch.manual_seed(4)
    weights = torchvision.models.resnet18().state_dict()
    name = Path(torchvision.models.get_model_weights("resnet18").DEFAULT.url).name
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(weights, folder / name)
    made = make_backbone("torchvision:resnet18", pretrained=True).state_dict()
    first = next(value for key, value in made.items() if value.shape == (64, 3, 7, 7))
    assert torch.equal(first, weights["conv1.weight"])
    assert sum(value.numel() for value in made.values()) == sum(
        value.numel() for key, value in weights.items() if not key.startswith("fc.")
    )
