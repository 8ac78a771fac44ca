"""The Kafka broker: one node that is also its own controller, run in the foreground.

Belongs here: options that make a broker on a laptop small and quick to restart. Does not belong here: reading
topics (`dagster_tidemark.sources.kafka`) and watching the process.
"""

import base64
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from dagster_tidemark.errors import Transient
from dagster_tidemark.local.host import machine
from dagster_tidemark.local.spark.jars import Bundle, fetch_jars
from dagster_tidemark.local.spark.server import CONSOLE_LOGGING, spark_home
from dagster_tidemark.settings import Settings, load_settings

JARS = Bundle(
    "kafka",
    ((("org.apache.kafka:kafka_2.13:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"), ()),),
    count=45,
)

_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "data",  # relative: an absolute path could hold a comma, which separates folders here
    # Misspelled topics are reported as unknown.
    "auto.create.topics.enable": "false",
    # For Kafka's own topics: one node cannot replicate, and opening fifty partitions of each takes time.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker may register again after this time. Kafka's default is nine seconds.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "500",
}
_SMALL = ("-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_SECONDS_TO_FORMAT = 60


def folder(settings: Settings) -> Path:
    """Return the folder of the broker. Its logs of records are in `data`."""
    return settings.state_dir / "kafka"


def address(settings: Settings) -> str:
    """Return the broker's address for clients."""
    return f"127.0.0.1:{settings.port_kafka}"


def prepare(settings: Settings, overrides: Mapping[str, str]) -> list[str]:
    """Write the configuration, and format the folder the first time. Return the command to run in the folder.

    Args:
        overrides: Kafka properties that replace the platform's.

    Raises:
        Transient: it cannot be started.
    """
    fetch_jars(settings, JARS)
    place = folder(settings)
    place.mkdir(parents=True, exist_ok=True)
    (place / "log4j2.properties").write_text(CONSOLE_LOGGING)
    properties = place / "server.properties"
    conf = _ONE_NODE | _listeners(settings) | dict(overrides)
    properties.write_text("".join(f"{name}={value}\n" for name, value in conf.items()))
    if not (place / "data" / "meta.properties").exists():
        _format(settings)
    return _java(settings, "kafka.Kafka", properties.name)


def _listeners(settings: Settings) -> dict[str, str]:
    with socket.socket() as probe:  # any free port: only this broker calls the controller
        probe.bind(("127.0.0.1", 0))
        controller = f"127.0.0.1:{probe.getsockname()[1]}"
    return {
        "listeners": f"PLAINTEXT://{address(settings)},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address(settings)}",
        "controller.quorum.voters": f"1@{controller}",
    }


def _format(settings: Settings) -> None:
    shutil.rmtree(folder(settings) / "data", ignore_errors=True)  # left by a killed formatting
    command = _java(settings, "kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", "server.properties")
    done = subprocess.run(
        command, cwd=folder(settings), capture_output=True, text=True, timeout=_SECONDS_TO_FORMAT, check=False
    )
    if done.returncode:
        raise Transient(f"Kafka's folder could not be formatted: {(done.stderr or done.stdout).strip()[-2000:]}")


def _new_id() -> str:
    """Return a cluster id. Like Kafka's own it never begins with a hyphen, which the tools would take for an option."""
    found = "-"
    while found.startswith("-"):
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return found


def _java(settings: Settings, main_class: str, *arguments: str) -> list[str]:
    (scala,) = (spark_home() / "jars").glob("scala-library-*.jar")  # not in the bundle: Ivy counts it as Spark's own
    java = shutil.which(machine.java_command()) or machine.java_command()
    class_path = os.pathsep.join([f"{JARS.folder(settings)}/*", str(scala)])
    return [java, *_SMALL, "-Dlog4j2.configurationFile=log4j2.properties", "-cp", class_path, main_class, *arguments]


def main() -> None:
    """Become the broker: the process id stays, so that a supervisor watches the broker itself."""
    become(load_settings(), {})


def become(settings: Settings, overrides: Mapping[str, str]) -> NoReturn:
    """Become the broker, with Kafka properties that replace the platform's."""
    command = prepare(settings, overrides)
    os.chdir(folder(settings))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
