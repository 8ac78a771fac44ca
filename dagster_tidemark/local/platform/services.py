"""The services of the platform: for each its command, and a test if it is ready.

Belongs here: the declarations and the supervisor's configuration file. Does not belong here: starting and
stopping (`local.platform.supervision`) and the order (`local.platform.whole_platform`).
"""

import shlex
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from dagster_tidemark.local.dagster.run_launcher import server_answers
from dagster_tidemark.local.host.sockets import port_answers
from dagster_tidemark.settings import Settings

_PROXY, _SERVER = {"code-server", "start"}, {"api", "grpc"}


@dataclass(frozen=True)
class Service:
    """A process of the platform.

    Args:
        name: Its name in the supervisor, and the name of its log file.
        title: Its name in messages.
        arguments: Arguments of Python.
        is_ready: Returns True if it does its work.
        port: The port that it listens on.
        seconds_to_stop: Time that it may take to end before it is killed.
        lacks: Returns the reason why the process with an id cannot work although it answers; empty if it can.
    """

    name: str
    title: str
    arguments: tuple[str, ...]
    is_ready: Callable[[], bool]
    port: int | None = None
    seconds_to_stop: int = 5
    lacks: Callable[[int], str] = lambda _: ""


def all_services(settings: Settings) -> dict[str, Service]:
    """Return the services by name, in the order of their start. The supervisor stops them in the opposite order."""
    services = (
        Service(
            name="cloud",
            title="local cloud (S3, SQS)",
            arguments=("-m", "dagster_tidemark.local.cloud.server"),
            is_ready=lambda: port_answers(settings.port_cloud),
            port=settings.port_cloud,
        ),
        Service(
            name="spark",
            title="Spark Connect server",
            arguments=("-m", "dagster_tidemark.local.spark.server"),
            is_ready=lambda: port_answers(settings.port_spark),
            port=settings.port_spark,
        ),
        Service(
            name="kafka",
            title="Kafka broker",
            arguments=("-m", "dagster_tidemark.local.kafka_server"),
            is_ready=lambda: port_answers(settings.port_kafka),
            port=settings.port_kafka,
        ),
        Service(
            name="feed",
            title="sample feed",
            arguments=("-m", "dagster_tidemark.cli.app", "feed"),
            is_ready=lambda: True,
        ),
        Service(
            name="runs",
            title="fork server for runs",
            arguments=("-m", "dagster_tidemark.local.dagster.fork_server"),
            is_ready=lambda: server_answers(settings.platform_home),
        ),
        Service(
            name="dagster",
            title="dagster dev",
            arguments=("-m", "dagster_tidemark.local.dagster.dev"),
            is_ready=lambda: url_answers(f"http://127.0.0.1:{settings.port_ui}/server_info"),
            port=settings.port_ui,
            # A sensor that waits for messages (4 s) ignores the signal. A kill after that loses nothing.
            seconds_to_stop=6,
            lacks=lost_code_server,
        ),
    )
    return {service.name: service for service in services}


def log_file(settings: Settings, name: str) -> Path:
    """Return the file of a service's output."""
    return settings.state_dir / "logs" / f"{name}.log"


def supervisor_config(services: dict[str, Service], socket_path: Path) -> str:
    """Return the configuration of supervisord: it starts no service by itself, and restarts started ones that die.

    supervisord must run in the state folder: an absolute path could hold a character that is special in this file.
    """
    sections: dict[str, dict[str, object]] = {
        "unix_http_server": {"file": socket_path, "chmod": "0700"},
        "supervisord": {
            "nodaemon": "true",
            "silent": "true",
            "logfile": "logs/supervisor.log",
            "logfile_maxbytes": "1MB",
            "logfile_backups": "1",
            "pidfile": "run/supervisor.pid",
            "childlogdir": "run",
        },
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface",
        },
    }
    for number, service in enumerate(services.values()):
        sections[f"program:{service.name}"] = {
            "command": shlex.join([sys.executable, *service.arguments]),
            "priority": number,
            "autostart": "false",
            "autorestart": "true",
            # A service may fail for long, as while its port is taken. Each wait is a second longer than the one before.
            "startretries": "1000",
            "startsecs": "3",
            "stopwaitsecs": service.seconds_to_stop,
            "stopasgroup": "true",
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": f"logs/{service.name}.log",
            "stdout_logfile_maxbytes": "10MB",
            "stdout_logfile_backups": "1",
        }
    blocks = (
        "\n".join([f"[{title}]", *(f"{key} = {str(value).replace('%', '%%')}" for key, value in options.items())])
        for title, options in sections.items()
    )
    return "\n\n".join(blocks) + "\n"


def url_answers(url: str) -> bool:
    """Return True if a GET answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def lost_code_server(pid: int) -> str:
    """Return the fault of a `dagster dev` in words; empty if there is none, or if its proxies have not started yet.

    A proxy of `dagster dev` outlives its code server and does not start another.
    """
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
