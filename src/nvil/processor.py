"""Which kind of processor this is: what is compiled for one may not run on another, and both may share a home."""

import platform
import zlib
from pathlib import Path


def kind() -> str:
    """A short name; on Linux, two processors share it only if they have the same instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()}-{zlib.crc32(features.encode()):08x}"
