"""The Spark Connect server, run in the foreground: its command and configuration.

Belongs here: options that make a server on a laptop small, quiet and tidy. Does not belong here: the lake's
configuration (`dagster_tidemark.lakehouse.session.server_conf`) and watching the process.
"""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from dagster_tidemark.lakehouse.session import (
    ONE_MACHINE,
    SESSION_TIMEOUTS,
    kafka_jars,
    keep_password,
    lake_jars,
    require_jars,
    server_conf,
)
from dagster_tidemark.local.spark.class_archive import conf_dir, java_options
from dagster_tidemark.settings import Settings, load_settings

CONSOLE_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
"""Configuration of log4j that logs to standard error, which the supervisor writes to a file."""
_LOGGING = f"""\
{CONSOLE_LOGGING}\
# Says at every start that a laptop has no native Hadoop library, and that it has no metrics file.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.metrics.name = org.apache.hadoop.metrics2
logger.metrics.level = error
"""

PYTHON_DAEMON = "dagster_tidemark.local.spark.python_daemon"
"""Name of the module, which is not imported here because it imports the workers' libraries."""

_CLEARED = ("SPARK_REMOTE", "SPARK_DAEMON_MEMORY", "PYSPARK_SUBMIT_ARGS", "SPARK_DAEMON_JAVA_OPTS", "MASTER")
"""Variables of the caller that change what `spark-submit` starts."""


def spark_home() -> Path:
    """Return the folder of Spark inside the pyspark wheel."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pyspark is not installed")
    return Path(spec.origin).parent


def work_dir(settings: Settings) -> Path:
    """Return the folder that the server runs in, with its configuration and spills. Every start empties it."""
    return settings.state_dir / "run" / "spark"


def command(settings: Settings) -> list[str]:
    """Return the command of the server. Run it with `environment`, after `prepare`."""
    submit = str(spark_home() / "bin" / "spark-submit")
    main_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    # A file of properties, not arguments: credentials must not appear in the process list.
    properties = str(work_dir(settings) / "spark.properties")
    return [
        submit,
        "--properties-file",
        properties,
        "--class",
        main_class,
        "spark-internal",
    ]


def environment(settings: Settings, base: dict[str, str]) -> dict[str, str]:
    """Return the environment of the server, based on that of the process that starts it."""
    kept = {name: value for name, value in base.items() if name not in _CLEARED}
    return kept | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(conf_dir(settings)),
        "SPARK_LOCAL_DIRS": str(work_dir(settings) / "tmp"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # These jars come last on the class path. The class path of the class archive must be the beginning of this one,
        # so that an archive recorded without Kafka also fits a server with it.
        "SPARK_DIST_CLASSPATH": kafka_jars(settings) or "",
    }


def prepare(settings: Settings, *instead_of_archive: str) -> None:
    """Write the server's configuration into an otherwise empty folder. It must not be running."""
    require_jars(settings)
    work = work_dir(settings)
    shutil.rmtree(work, ignore_errors=True)
    (work / "tmp").mkdir(parents=True)
    conf_dir(settings).mkdir(parents=True, exist_ok=True)
    for folder in (settings.warehouse, *_catalog_folder(settings)):
        if "://" not in folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
    keep_password(settings)
    conf = server_conf(settings)
    java = (
        *conf.pop("spark.driver.extraJavaOptions").split(),
        f"-Djava.io.tmpdir={work / 'tmp'}",
        f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}",
        *(instead_of_archive or java_options(settings)),
    )
    conf |= (
        ONE_MACHINE
        | SESSION_TIMEOUTS
        | {
            "spark.master": "local[*]",
            "spark.app.name": "tidemark",
            "spark.driver.memory": settings.spark_memory,
            "spark.driver.extraClassPath": lake_jars(settings),  # Kafka's: see `environment`
            "spark.driver.extraJavaOptions": " ".join(map(_quoted, java)),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(settings.port_spark),
            "spark.ui.showConsoleProgress": "false",
            "spark.python.daemon.module": PYTHON_DAEMON,
            "spark.sql.warehouse.dir": str(work / "tmp" / "warehouse"),
            "spark.hadoop.hadoop.tmp.dir": str(work / "tmp"),
        }
    )
    properties = work / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in conf.items()))
    (work / "log4j2.properties").write_text(_LOGGING)


def _catalog_folder(settings: Settings) -> list[str]:
    path = settings.catalog_uri.removeprefix("jdbc:sqlite:").partition("?")[0]
    return [str(Path(path).parent)] if path.startswith("/") else []


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _quoted(option: str) -> str:
    return f'"{option}"' if " " in option else option


def main() -> None:
    """Become the server: the process id stays, so that a supervisor watches the server itself.

    Arguments are JVM options that replace the options for the class archive.
    """
    settings = load_settings()
    prepare(settings, *sys.argv[1:])
    os.chdir(work_dir(settings) / "tmp")
    arguments = command(settings)
    os.execve(arguments[0], arguments, environment(settings, dict(os.environ)))


if __name__ == "__main__":
    main()
