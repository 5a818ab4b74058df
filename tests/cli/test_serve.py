"""kinspace serve; the server is in tests/server."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from bundles import bare_run, run_with_gallery
from command_line import run


def test_a_run_without_a_gallery_needs_kinspace_index(tmp_path: Path) -> None:
    said = run("serve", bare_run(tmp_path), "--device", "cpu", code=2)
    assert "make one with: kinspace index" in said


def test_a_port_in_use_is_said_before_an_address_and_a_free_one_is_offered(tmp_path: Path) -> None:
    folder = run_with_gallery(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run("serve", folder, "--port", port, "--device", "cpu", code=2)
    assert f"port: {port} is in use; the next free one is --port " in said
    assert "http://" not in said
    free = int(re.findall(r"--port (\d+)", said)[0])
    assert port < free < port + 100


def test_open_shows_the_page_in_a_browser_when_the_server_answers(tmp_path: Path) -> None:
    folder, asked = run_with_gallery(tmp_path), tmp_path / "asked.txt"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {asked}.part && mv {asked}.part {asked}\n')
    browser.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kinspace", "serve", folder, "--port", port, "--open"]
    started = subprocess.Popen(
        [str(each) for each in [*command, "--device", "cpu"]],
        env=os.environ | {"BROWSER": f"{browser} %s"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    lines = iter(started.stderr.readline, "")
    line = next(each for each in lines if "http://" in each)
    assert f"1,797 pictures at http://127.0.0.1:{port}" in line
    assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).json() == {"status": "ok"}
    while not asked.exists():
        assert started.poll() is None
        time.sleep(0.05)
    assert asked.read_text().strip() == f"http://127.0.0.1:{port}"
    started.send_signal(signal.SIGINT)
    assert started.wait(60) in (0, 130)
    started.stderr.close()
