"""Names of the UNIX sockets that connect programs of one state folder."""

import hashlib
import os
import re
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
