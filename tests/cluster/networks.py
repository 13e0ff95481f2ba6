"""Machines that can be cut off: namespaces with addresses, on a bridge that leads nowhere.

Needs root and `ip`. Nothing is changed outside the namespaces, which go when the block ends.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

HUB = "10.77.0.1"


@dataclass(frozen=True)
class Machine:
    """A namespace by its name, its address, and the one that it is wired to; a hub is to none."""

    name: str
    ip: str
    hub: str = ""

    @property
    def prefix(self) -> tuple[str, ...]:
        """What runs a command there."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Nothing goes in or out any more."""
        _ip("-n", self.hub, "link", "set", self.name, "down")

    def mend(self) -> None:
        """Everything goes as before."""
        _ip("-n", self.hub, "link", "set", self.name, "up")


@contextmanager
def network(count: int) -> Iterator[tuple[Machine, ...]]:
    """A hub, which is never cut off, and machines that reach it and each other."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and `ip` for network namespaces")
    tag = uuid.uuid4().hex[:6]  # names of devices have 15 characters at most
    hub = Machine(f"ts{tag}", HUB)
    made = [hub.name]
    try:
        _ip("netns", "add", hub.name)
        _ip("-n", hub.name, "link", "set", "lo", "up")
        _ip("-n", hub.name, "link", "add", "bridge0", "type", "bridge")
        _up(hub, "bridge0")
        machines = [hub]
        for number in range(1, count + 1):
            machine = Machine(f"ts{tag}n{number}", f"10.77.0.{10 + number}", hub.name)
            _ip("netns", "add", machine.name)
            made.append(machine.name)
            _ip("-n", machine.name, "link", "set", "lo", "up")
            wire = ("link", "add", machine.name, "type", "veth", "peer", "name", "wire0")
            _ip("-n", hub.name, *wire, "netns", machine.name)
            _ip("-n", hub.name, "link", "set", machine.name, "master", "bridge0", "up")
            _up(machine, "wire0")
            machines.append(machine)
        yield tuple(machines)
    finally:
        for name in reversed(made):
            _ip("netns", "delete", name)


def _up(machine: Machine, device: str) -> None:
    # A route to everywhere, without which programs find no address of their own.
    _ip("-n", machine.name, "address", "add", f"{machine.ip}/24", "dev", device)
    _ip("-n", machine.name, "link", "set", device, "up")
    _ip("-n", machine.name, "route", "add", "default", "dev", device)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
