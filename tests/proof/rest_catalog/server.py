"""Iceberg's reference server of a REST catalog, as a process. Its jars come by Maven, once, into the folder of jars.

Does not belong here: tokens and credentials (`gateway`).
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import JARS, end_service, port_answers_within

HERE = Path(__file__).parent
VERSION = "1.11.0"
"""Version of iceberg-core in `pom.xml`."""


def rest_command(port: int, folder: Path, options: Mapping[str, str] | None = None, more_jars: str = "") -> list[str]:
    """Return the command of the server. Without options, tables are in the folder.

    Args:
        options: Iceberg's options of the server's own catalog, such as those of a warehouse on S3.
        more_jars: Further class path, such as a folder with the driver of the server's database.
    """
    jars = JARS / "rest-catalog"
    if not all(list(jars.glob(f"{name}-*.jar")) for name in ("iceberg-core", "iceberg-aws", "apache-client")):
        maven = shutil.which("mvn")
        assert maven, "the reference server's jars come by Maven: install mvn"
        copy = [maven, "-q", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(copy, check=True, timeout=600)
    class_path = ":".join(filter(None, (f"{jars}/*", more_jars)))
    command = ["java", "-cp", class_path, str(HERE / "RestCatalog.java"), str(port), str(folder)]
    return command + [f"{name}={value}" for name, value in (options or {}).items()]


@contextmanager
def rest_server(port: int, folder: Path, options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run the server with the options of `rest_command`."""
    log = folder / "rest.log"
    command = rest_command(port, folder, options)
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        port_answers_within(process, port, log, seconds=120)
        yield
    finally:
        end_service(process)
