"""What has to be true of this machine before anything starts, each said in one line that names the setting.

Belongs here: Java, Python, the state folder, the ports. Does not belong here: what goes wrong later, in a service.
"""

import errno
import shutil
import socket
import tempfile
from importlib.util import find_spec

from dagster_tidemark.errors import Transient
from dagster_tidemark.local.platform import machine
from dagster_tidemark.local.spark.jars import missing_jars
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.kafka_errors import KafkaMissing

_MB = 2**20
_FIRST_MB, _LATER_MB = 1_000, 300  # jars, Spark's class archive, logs and some tables; then only what is new
_NAMED = {errno.EROFS: "it is read-only", errno.EACCES: "no permission", errno.ENOSPC: "the disk is full"}


class CannotStart(Transient):
    """Something on this machine is in the way. The message says what to do."""


def require_machine() -> None:
    """Java and Python are ones that everything here works with.

    Raises:
        CannotStart: they are not.
    """
    if complaint := machine.complaint():
        raise CannotStart(complaint)


def require_folder(settings: Settings) -> None:
    """The state folder can be written, and its disk has room.

    Raises:
        CannotStart: it cannot, or has not.
    """
    folder = settings.state_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        reason = _NAMED.get(error.errno or 0) or error.strerror
        raise CannotStart(f"TIDEMARK_STATE_DIR={folder}: cannot be written, {reason}; name another folder") from error
    needed = _FIRST_MB if missing_jars(settings) else _LATER_MB
    free = shutil.disk_usage(folder).free // _MB
    if free < needed:
        raise CannotStart(
            f"TIDEMARK_STATE_DIR={folder}: {free} MB are free on its disk and {needed} are needed; "
            "make room, or name another folder"
        )


def require_kafka_client() -> None:
    """The library that Kafka is spoken to with is installed.

    Raises:
        KafkaMissing: it is not.
    """
    if find_spec("confluent_kafka") is None:
        raise KafkaMissing


def require_ports(settings: Settings, *, with_kafka: bool = False) -> None:
    """The ports that the platform is to listen on are free.

    Raises:
        CannotStart: another program has one.
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
            # As servers do it: connections of a predecessor that are still closing are not in the way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise CannotStart(
                    f"TIDEMARK_PORT_{name}={port}: port taken by another program ({error.strerror})"
                ) from error
