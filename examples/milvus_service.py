"""A search service with Milvus: train, index into the database, serve, ask over HTTP.

The database is a file here, by milvus-lite; with `options={"uri": "https://host:19530"}` it is a
server or a cluster, and nothing else changes. The service is the one of `kinspace serve`.

Run it with `python examples/milvus_service.py`. About 20 seconds on two cores; it needs
`pip install 'kinspace[serve,milvus]'`.
"""

import json
import socket
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import uvicorn

import kinspace
from kinspace.inference import EmbeddingModel, index_run
from kinspace.server.app import make_app

QUICK = {
    "schedule.steps": 20,
    "validation.every": 10,
    "transform.size": 16,
    "model.dim": 16,
    "model.options": {"width": 8, "size": 16},
}


def make_gallery(folder: Path) -> EmbeddingModel:
    """A small net, trained on half of the digits, and all digits in a Milvus collection."""
    trained = kinspace.train(
        "digits", method="proxy_anchor", changes=QUICK, out=folder / "run", device="cpu", quiet=True
    )
    return index_run(trained, backend="milvus")


def ask(model: EmbeddingModel, path: str) -> Any:
    """Start the service on a free port, ask for one path, stop it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(make_app(model), host="127.0.0.1", port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return json.load(answer)
    finally:
        server.should_exit = True
        thread.join()


def run(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The neighbors of a picture as the service has them, and how many pictures it then holds."""
    model = make_gallery(folder)
    first = urllib.parse.quote(model.table.ids[0])
    neighbors = ask(model, f"/api/neighbors/{first}?k=5")["neighbors"]
    model.relabel([model.table.ids[0]], "a class of its own")  # searched for at once
    return neighbors, len(model.index)


def main() -> None:
    """Print the neighbors of the first picture."""
    with tempfile.TemporaryDirectory() as folder:
        neighbors, count = run(Path(folder))
        for neighbor in neighbors:
            print(neighbor["id"], neighbor["class"], f"{neighbor['similarity']:.3f}")
        print(f"{count:,} pictures in Milvus")


if __name__ == "__main__":
    main()
