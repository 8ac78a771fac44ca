"""Names of UNIX sockets: where programs of one state folder find each other."""

import hashlib
import os
import re
import tempfile
from pathlib import Path

_MOST_BYTES = 90  # macOS allows 104, and supervisord appends to the name


def socket_path(folder: Path, name: str) -> Path:
    """The socket `name` of a folder; for a folder whose name cannot be a socket's, one in the temporary folder."""
    path = folder / f"{name}.sock"
    # supervisord's configuration gives a meaning to some characters.
    if len(os.fsencode(path)) < _MOST_BYTES and re.fullmatch(r"[\w./-]+", str(path)):
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tidemark-{digest}.sock"
