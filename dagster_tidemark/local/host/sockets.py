"""Sockets of this machine: paths of UNIX sockets that connect programs of one state folder, and ports."""

import hashlib
import os
import re
import socket
import tempfile
from pathlib import Path

_MOST_BYTES = 90  # macOS allows 104, and supervisord appends to the name


def socket_path(folder: Path, name: str) -> Path:
    """Return the socket `name` of a folder, or one in the temporary folder if its path cannot be a socket's."""
    path = folder / f"{name}.sock"
    # Some characters are special in supervisord's configuration.
    if len(os.fsencode(path)) < _MOST_BYTES and re.fullmatch(r"[\w./-]+", str(path)):
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tidemark-{digest}.sock"


def port_answers(port: int) -> bool:
    """Return True if a program listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
