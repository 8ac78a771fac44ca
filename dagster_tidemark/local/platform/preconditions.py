"""Preconditions of a start on this machine. Each failure is one line that names the setting.

Belongs here: Java, Python, the state folder, the ports. Does not belong here: later failures of services.
"""

import errno
import shutil
import socket
import tempfile
from importlib.util import find_spec

from dagster_tidemark.errors import Transient
from dagster_tidemark.local.host import machine
from dagster_tidemark.local.spark.jars import LAKE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.kafka_errors import KafkaMissing

_MB = 2**20
_FIRST_MB, _LATER_MB = 1_000, 300  # first: jars, Spark's class archive, logs and some tables; later: new data
_NAMED = {errno.EROFS: "it is read-only", errno.EACCES: "no permission", errno.ENOSPC: "the disk is full"}


def require_machine() -> None:
    """Raise if Java or Python is missing or of an unsupported version.

    Raises:
        Transient: either is.
    """
    if complaint := machine.complaint():
        raise Transient(complaint)


def require_folder(settings: Settings) -> None:
    """Raise if the state folder cannot be written, or its disk has too little room.

    Raises:
        Transient: it cannot, or has too little.
    """
    folder = settings.state_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        reason = _NAMED.get(error.errno or 0) or error.strerror
        raise Transient(f"TIDEMARK_STATE_DIR={folder} cannot be written ({reason}); set another folder") from error
    needed = _LATER_MB if LAKE.is_complete(settings) else _FIRST_MB
    free = shutil.disk_usage(folder).free // _MB
    if free < needed:
        raise Transient(
            f"TIDEMARK_STATE_DIR={folder}: expected {needed} MB of free disk space, found {free} MB; "
            "free some space, or set another folder"
        )


def require_kafka_client() -> None:
    """Raise if the Kafka client library is not installed.

    Raises:
        KafkaMissing: it is not.
    """
    if find_spec("confluent_kafka") is None:
        raise KafkaMissing


def require_ports(settings: Settings, *, with_kafka: bool = False) -> None:
    """Raise if a port of the platform is not free.

    Raises:
        Transient: another program listens on it.
    """
    ports = {"UI": settings.port_ui}
    if settings.own_cloud:
        ports["CLOUD"] = settings.port_cloud
    if settings.own_spark:
        ports["SPARK"] = settings.port_spark
    if with_kafka:
        ports["KAFKA"] = settings.port_kafka
    for name, port in ports.items():
        with socket.socket() as probe:
            # As servers do: closing connections of a predecessor do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise Transient(
                    f"TIDEMARK_PORT_{name}={port}: another program uses this port ({error.strerror}); set another port"
                ) from error
