"""A process that decodes pictures, so that one that takes too long or too much memory can be ended.

A thread cannot be stopped, and what Pillow's libraries allocate cannot be limited within a process
that does anything else. `PictureProcess` starts `python -m kinspace._core.picture_process`, which
imports neither PyTorch nor anything else but Pillow and NumPy. It is sent the bytes of a picture
and sends back a square, or the reason why not: no object of Python goes either way, so that a
picture which takes over the decoder gains no more than a wrong answer.
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError

from kinspace._core.picture import Square, UnreadablePicture, decode, known_formats

__all__ = ["PictureLimits", "PictureProcess", "RefusedPicture", "read_limited"]

PATIENCE = 6  # times as long as the limit: for a busy machine, and one without timers of CPU time
LENGTH = struct.Struct("<Q")
READY = b"ready\n"
OUT_OF_TIME = -getattr(signal, "SIGPROF", 0) or None  # how a process over its time has ended


class RefusedPicture(ValueError):
    """A picture that is not decoded. kind: format, pixels, memory, time or broken."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True)
class PictureLimits:
    """What is decoded: formats of Pillow, pixels, bytes of memory, seconds; and to which square.

    seconds: of a core, so that a busy machine refuses no more than an idle one. nice: by how much
    the priority of the process is lower than that of the one that starts it.
    """

    formats: tuple[str, ...]
    pixels: int
    memory: int
    seconds: float
    resize: int
    fit: str
    nice: int = 0


def read_limited(data: bytes, formats: tuple[str, ...], pixels: int) -> Image.Image:
    """The picture in these bytes, upright and RGB; nothing is decoded before its size is known.

    >>> read_limited(b"hello", ("PNG",), 100)
    Traceback (most recent call last):
    kinspace._core.picture_process.RefusedPicture: another kind of file
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about Pillow's own limit; ours is below
            with Image.open(io.BytesIO(data), formats=known_formats(formats)) as picture:
                width, height = picture.size
    except UnidentifiedImageError:
        raise RefusedPicture("format", "another kind of file") from None
    except Image.DecompressionBombError:
        raise RefusedPicture("pixels", "more") from None
    except MemoryError:
        raise RefusedPicture("memory", "more") from None
    except Exception as error:  # noqa: BLE001 - Pillow's plugins raise almost anything
        raise RefusedPicture("broken", f"cannot be read: {error}") from None
    if width * height > pixels:
        raise RefusedPicture("pixels", f"{width:,} x {height:,}")
    try:
        # frames are not counted, which takes long in a file of many directories
        return decode(io.BytesIO(data), "picture", formats=formats, count_frames=False)
    except UnreadablePicture as error:
        if isinstance(error.__context__, MemoryError):
            raise RefusedPicture("memory", "more") from None
        raise RefusedPicture("broken", error.reason) from None


class PictureProcess:
    """A process that makes squares of pictures, one at a time.

    It is started when it is first needed, and again after it was ended. One thread at a time uses
    it.

    >>> process = PictureProcess(PictureLimits(("PNG",), 10_000, 2**30, 60.0, 8, "squash"))
    >>> data = io.BytesIO()
    >>> Image.new("RGB", (40, 30), "red").save(data, "png")
    >>> process.square(data.getvalue()).size
    (8, 8)
    >>> process.close()
    """

    def __init__(self, limits: PictureLimits) -> None:
        self.limits = limits
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, if it does not run, and wait until it is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        command = [sys.executable, "-m", __name__, json.dumps(asdict(self.limits))]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libraries print what they think of a picture
            env=_environment(),
        )
        if self._pipes()[1].readline() != READY:
            self.close()
            raise RuntimeError(
                f"the process that decodes pictures does not start: {' '.join(command)}"
            )

    def square(self, data: bytes) -> Image.Image:
        """The picture as a square; raises a `RefusedPicture`."""
        self.start()
        process, over = self._process, threading.Event()
        assert process is not None

        def end() -> None:
            over.set()
            process.kill()

        timer = threading.Timer(PATIENCE * self.limits.seconds, end)
        timer.start()
        try:
            return self._answer(data)
        except (OSError, EOFError):  # it has ended
            self.close()
            if over.is_set() or process.returncode == OUT_OF_TIME:
                raise RefusedPicture("time", f"{self.limits.seconds:g} seconds") from None
            raise RefusedPicture("broken", "the process that decoded it failed") from None
        finally:
            timer.cancel()
            timer.join()  # later it would end the process over the next picture
            if over.is_set():
                self.close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process is not None
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        return to, back

    def _answer(self, data: bytes) -> Image.Image:
        to, back = self._pipes()
        to.write(LENGTH.pack(len(data)))
        to.write(data)
        to.flush()
        try:
            header = json.loads(back.readline())
        except ValueError:  # nothing, or half a line
            raise EOFError from None
        if "kind" in header:
            raise RefusedPicture(str(header["kind"]), str(header["reason"]))
        side = self.limits.resize
        return Image.frombytes("RGB", (side, side), _exactly(back, 3 * side * side))

    def end(self) -> None:
        """End the process, also while another thread waits for its answer."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process and close its pipes."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not sent
                if pipe is not None:
                    pipe.close()
        process.wait()

    def __del__(self) -> None:
        self.close()


def _environment() -> dict[str, str]:
    """Of the process: this package can be imported, and its libraries start no threads."""
    package = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if name != "KINSPACE_TOKEN"}
    return {**kept, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _limit_time(seconds: float) -> None:
    """End this process when it has used so many seconds of a core from now on; 0: no longer."""
    with suppress(AttributeError):  # on Windows
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _limit_memory(more: int) -> None:
    """Let this process have so many bytes more than it has; where the system can do that."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows; not all of it on macOS
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes no files
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _work(limits: PictureLimits, come: IO[bytes], back: IO[bytes]) -> None:
    """Answer until the other process closes the pipe."""
    while len(head := come.read(LENGTH.size)) == LENGTH.size:
        data = _exactly(come, *LENGTH.unpack(head))
        _limit_time(limits.seconds)
        header, pixels = _response(data, limits)
        _limit_time(0)
        back.write(json.dumps(header).encode() + b"\n" + pixels)
        back.flush()


def _response(data: bytes, limits: PictureLimits) -> tuple[dict[str, str], bytes]:
    """Why the picture is refused, or nothing and the pixels of its square."""
    try:
        picture = read_limited(data, limits.formats, limits.pixels)
        return {}, Square(limits.resize, limits.fit)(picture).tobytes()
    except RefusedPicture as refused:
        return {"kind": refused.kind, "reason": refused.reason}, b""
    except MemoryError:
        return {"kind": "memory", "reason": "more"}, b""


def _main() -> None:
    back = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a library that prints does so elsewhere
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this one
    given = json.loads(sys.argv[1])
    limits = PictureLimits(**{**given, "formats": tuple(given["formats"])})
    with suppress(AttributeError):  # on Windows
        os.nice(limits.nice)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends it, in the middle of a decoder too
    known_formats(limits.formats)  # loads Pillow's plugins
    _limit_memory(limits.memory)
    back.write(READY)
    back.flush()
    with suppress(EOFError):
        _work(limits, sys.stdin.buffer, back)


if __name__ == "__main__":
    _main()
