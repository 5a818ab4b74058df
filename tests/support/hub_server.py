"""The endpoints of the Hugging Face Hub that pushing and fetching a model takes, on this machine.

Repositories are kept in memory; every push is one commit, with the files in it.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

MODEL = r"(?P<name>[^/]+/[^/]+)"


class Hub:
    """What was pushed: files by repository, and whether it is private."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}

    def commit(self, name: str) -> str:
        """The commit that the main branch is at."""
        digest = hashlib.sha1(name.encode())  # of the length that the Hub's have
        for path, content in sorted(self.files[name].items()):
            digest.update(path.encode() + content)
        return digest.hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._get(body=False)

    def do_GET(self) -> None:
        self._get(body=True)

    def _get(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(rf"/api/models/{MODEL}(/revision/[^/]+)?", path):
            self._describe(found["name"])
        elif found := re.fullmatch(rf"/api/models/{MODEL}/tree/[^/]+", path):
            files = self.hub.files.get(found["name"], {})
            entries = [self._entry(file, content) for file, content in files.items()]
            self._json(entries)
        elif found := re.fullmatch(rf"/{MODEL}/resolve/[^/]+/(?P<file>.+)", path):
            self._file(found["name"], found["file"], body=body)
        else:
            self._json({"error": f"no such page: {path}"}, 404)

    def _describe(self, name: str) -> None:
        if name not in self.hub.files:
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            return
        files = [{"rfilename": file} for file in self.hub.files[name]]
        about = {"id": name, "modelId": name, "sha": self.hub.commit(name), "siblings": files}
        self._json(about | {"private": self.hub.private[name], "tags": [], "downloads": 0})

    def _entry(self, file: str, content: bytes) -> dict[str, Any]:
        oid = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": file, "size": len(content), "oid": oid}

    def _file(self, name: str, file: str, *, body: bool) -> None:
        content = self.hub.files.get(name, {}).get(file)
        if content is None:
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        headers["X-Repo-Commit"] = self.hub.commit(name)
        self._send(200, content if body else b"", headers, length=len(content))

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            asked = json.loads(data)
            name = f"{asked['organization']}/{asked['name']}"
            self.hub.files.setdefault(name, {})
            private = asked.get("private") or asked.get("visibility") == "private"
            self.hub.private.setdefault(name, bool(private))
            self._json({"url": f"{self._address()}/{name}", "name": name})
        elif path == "/api/validate-yaml":  # of a model card
            self._json({"errors": [], "warnings": []})
        elif re.fullmatch(rf"/api/models/{MODEL}/preupload/[^/]+", path):
            files = json.loads(data)["files"]
            modes = [{"path": f["path"], "uploadMode": "regular"} for f in files]
            self._json({"files": [mode | {"shouldIgnore": False} for mode in modes]})
        elif found := re.fullmatch(rf"/api/models/{MODEL}/commit/[^/]+", path):
            self._commit(found["name"], data)
        else:
            self._json({"error": f"no such page: {path}"}, 404)

    def _commit(self, name: str, data: bytes) -> None:
        for line in map(json.loads, data.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                self.hub.files[name][line["value"]["path"]] = content
        commit = self.hub.commit(name)
        url = f"{self._address()}/{name}/commit/{commit}"
        self._json({"success": True, "commitOid": commit, "commitUrl": url})

    def _address(self) -> str:
        return f"http://{self.headers['Host']}"

    def _json(self, value: Any, code: int = 200, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(value).encode()
        self._send(code, content, {"Content-Type": "application/json", **(headers or {})})

    def _send(
        self, code: int, content: bytes, headers: dict[str, str], length: int | None = None
    ) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def hub_server() -> Iterator[tuple[str, Hub]]:
    """The address of a hub without models, and what it is given."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
