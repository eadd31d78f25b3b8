"""The kernel's boot id: what tells a crash of a process from a crash of the machine."""

from pathlib import Path


def boot_id() -> str:
    """Return a text that changes when the machine starts anew; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
