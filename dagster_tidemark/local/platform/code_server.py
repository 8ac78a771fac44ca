"""Detection of lost code servers: a proxy of `dagster dev` outlives its server and does not start another."""

from contextlib import suppress

import psutil

_PROXY, _SERVER = {"code-server", "start"}, {"api", "grpc"}


def lost_code_server(pid: int) -> str:
    """Return the fault of a `dagster dev` in words; empty if there is none, or if its proxies have not started yet."""
    with suppress(psutil.Error):
        below = psutil.Process(pid).children(recursive=True)
        if any(_is(process, _PROXY) and not _has_server(process) for process in below):
            return "lost its code server"
    return ""


def _has_server(proxy: psutil.Process) -> bool:
    return any(_is(child, _SERVER) for child in proxy.children(recursive=True))


def _is(process: psutil.Process, words: set[str]) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and words <= set(process.cmdline())
    except psutil.Error:
        return False
