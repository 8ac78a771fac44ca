"""`tidemark up --verbose`: the services' logs on the terminal, each line with the name of its service."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from dagster_tidemark.local.platform.services import log_file
from dagster_tidemark.settings import Settings

_SECONDS_BETWEEN_LOOKS = 0.3


@contextmanager
def followed_logs(settings: Settings, names: Sequence[str], console: Console) -> Iterator[None]:
    """Print new lines of the services' logs until the end of the block."""
    over = threading.Event()
    follower = threading.Thread(target=_follow, args=(settings, names, console, over), daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _follow(settings: Settings, names: Sequence[str], console: Console, over: threading.Event) -> None:
    logs = {name: log_file(settings, name) for name in names}
    read = {name: log.stat().st_size if log.exists() else 0 for name, log in logs.items()}
    is_last = False
    while not is_last:
        is_last = over.wait(_SECONDS_BETWEEN_LOOKS)
        for name, log in logs.items():
            size = log.stat().st_size if log.exists() else 0
            if size < read[name]:
                read[name] = 0  # it was rotated
            if size == read[name]:
                continue
            with log.open("rb") as lines:
                lines.seek(read[name])
                news = lines.read(size - read[name])
            whole = news.rfind(b"\n") + 1
            read[name] += whole
            for line in news[:whole].decode(errors="replace").splitlines():
                console.print(f"[dim]{name:>8}[/] {escape(line)}", highlight=False, soft_wrap=True)
