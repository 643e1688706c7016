"""Several workers on this machine, connected by 127.0.0.1, as a trial of several machines."""

import contextlib
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from .config import ConfigError

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # sched.h
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, net/if.h
_GRACE = 60.0  # seconds until the other workers are killed after one has failed


def launched(
    config: Path, workers: int, overrides: Sequence[str], all_addresses: bool = False
) -> int:
    """
    Run the workers to their end, and return 0 if all have succeeded, 1 otherwise.

    :param all_addresses: whether the workers may listen on all addresses of this machine.
    :raises ConfigError: if they may not, but cannot be given a network of their own either.
    """
    command = [sys.executable, "-m", "benchmarks", "run", str(config)]
    command += [part for override in overrides for part in ("--set", override)]
    network = contextlib.nullcontext() if all_addresses else own_network()
    with (
        tempfile.TemporaryDirectory() as folder,
        network as enter,
        contextlib.ExitStack() as at_the_end,
    ):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(workers)]}
        running: list[subprocess.Popen] = []
        at_the_end.callback(lambda: [process.kill() for process in running])
        for index in range(workers):
            task = {"type": "worker", "index": index}
            log = None if index == 0 else (Path(folder) / f"{index}.txt").open("w")
            options = [] if index == 0 else ["--quiet", "--set", f'output="{folder}/{index}"']
            environment = {
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            }
            running.append(
                subprocess.Popen(
                    [*command, *options], env=environment, stdout=log, stderr=log, preexec_fn=enter
                )
            )
        codes = _ended(running)
        for index, code in enumerate(codes):
            if code and index:
                last = (Path(folder) / f"{index}.txt").read_text()[-2_000:]
                typer.echo(f"Worker {index} ended with {code}:\n{last}", err=True)
    return int(any(codes))


def free_ports(number: int) -> list[int]:
    """Different ports that are free on 127.0.0.1."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _ended(running: Sequence[subprocess.Popen]) -> list[int]:
    """The exit codes. Once a worker has failed, the others are killed after a grace period."""
    deadline = float("inf")
    try:
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            if any(process.returncode for process in running):
                deadline = min(deadline, time.monotonic() + _GRACE)
            time.sleep(0.1)
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
    return [process.wait() for process in running]


@contextlib.contextmanager
def own_network() -> Iterator[Callable[[], None]]:
    """
    A function that moves the calling process into a network that consists of 127.0.0.1 alone.

    TensorFlow's servers listen on every address of the machine, whatever TF_CONFIG says. Linux
    lets a user create a network namespace, if it is configured to.

    :raises ConfigError: if no network namespace can be created.
    """
    holder = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            # ``cat`` keeps the network alive until its input is closed.
            holder = subprocess.Popen(["cat"], stdin=subprocess.PIPE, preexec_fn=_new_network)
    if holder is None:
        raise ConfigError(
            "TensorFlow's servers listen on all addresses of a machine, and a network of their own "
            "cannot be had here. Where that does no harm: --all-addresses."
        )
    spaces = [os.open(f"/proc/{holder.pid}/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
    try:
        yield lambda: [_checked("setns", space, 0) for space in spaces] and None
    finally:
        for space in spaces:
            os.close(space)
        holder.communicate()


def _new_network() -> None:
    import fcntl  # not at the top of the module, since Windows has no fcntl

    user, group = os.getuid(), os.getgid()
    _checked("unshare", _NEW_USER | _NEW_NETWORK)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _GET_FLAGS, request))[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def _checked(name: str, *args: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args):
        raise OSError(ctypes.get_errno(), name)
