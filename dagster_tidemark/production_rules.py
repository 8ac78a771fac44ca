"""Refusals of `TIDEMARK_ENVIRONMENT=production`: parts of a laptop, and passwords in clear text.

Belongs here: one rule for each refusal, with its remedy. A rule reads only the settings and the instance's file. Does
not belong here: questions to services (`doctor`), and values that are wrong in every environment (`settings`).

No rule is needed for the token in `SPARK_REMOTE`: the client sends it over TLS only.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from dagster_tidemark.catalog_options import is_location, without_login

if TYPE_CHECKING:
    from dagster_tidemark.settings import Settings

INSTANCE_FILE = "dagster.yaml"
ALLOWING = "TIDEMARK_ALLOW_WITHOUT_TLS"
"""The variable with names, separated by commas, whose connection may go without TLS."""
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_LOGIN_OPTIONS = ("token", "credential", "header.authorization", "header.Authorization")
_STORAGES = ("run_storage", "event_log_storage", "schedule_storage")


@dataclass(frozen=True)
class Instance:
    """The file `dagster.yaml` of a Dagster home.

    Args:
        config: Its content; empty if there is no file.
        fault: The reason why it cannot be read; empty if it can.
        is_known: False if no Dagster home is named. Then rules about the file do not apply.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    is_known: bool = True

    def at(self, *path: str) -> Any:
        """Return a value below these names, with `{env: NAME}` replaced; None if there is none."""
        value: Any = self.config
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping) and set(value) == {"env"}:
            return os.environ.get(str(value["env"]))
        return value


@dataclass(frozen=True)
class ProductionRule:
    """A refusal.

    Args:
        name: The variable or file that is named.
        found: Returns the fault and the remedy; empty if there is no fault.
        about_tls: True if the operator may allow the connection by its name (`TIDEMARK_ALLOW_WITHOUT_TLS`).
    """

    name: str
    found: "Callable[[Settings, Instance], str]"
    about_tls: bool = False


def refusals(settings: "Settings") -> list[str]:
    """Return a line for each refusal, which names the variable or file and the remedy; empty outside of production."""
    return list(_refusals(settings)) if settings.environment == "production" else []


def _refusals(settings: "Settings") -> Iterator[str]:
    instance = _instance(settings.dagster_home)
    allowed = {name.strip() for name in (settings.allow_without_tls or "").split(",") if name.strip()}
    known = {rule.name for rule in RULES if rule.about_tls}
    for name in sorted(allowed - known):
        yield f"{ALLOWING}={name}: expected names of {', '.join(sorted(known))}"
    for rule in RULES:
        if rule.name in allowed and rule.about_tls:
            continue
        if rule.name == INSTANCE_FILE and (not instance.is_known or instance.fault):
            continue
        if said := rule.found(settings, instance):
            yield f"{said}, or set {ALLOWING}={rule.name}" if rule.about_tls else said
    if instance.fault:
        yield instance.fault


def _spark(settings: "Settings", instance: Instance) -> str:
    return (
        ""
        if settings.spark_remote
        else "SPARK_REMOTE is not set: set it to your Spark Connect server (sc://host:15002)"
    )


def _sqlite_catalog(settings: "Settings", instance: Instance) -> str:
    if not settings.catalog_uri.startswith("jdbc:sqlite:"):
        return ""
    return (
        "TIDEMARK_CATALOG_URI is not set, or names SQLite, which is for a laptop: set it to "
        "jdbc:postgresql://host:5432/database?user=...&password=..., or choose another catalog with "
        "TIDEMARK_CATALOG__TYPE"
    )


def _local_warehouse(settings: "Settings", instance: Instance) -> str:
    if "://" in settings.warehouse:
        return ""
    return (
        f"TIDEMARK_WAREHOUSE is not set, or names a local folder ({settings.warehouse}): set it to a bucket "
        "(s3://bucket/prefix)"
    )


def _local_folder_of_catalog(settings: "Settings", instance: Instance) -> str:
    named = settings.catalog.get("warehouse", "")
    if not is_location(named) or ("://" in named and not named.startswith("file:")):
        return ""
    return f"TIDEMARK_CATALOG__WAREHOUSE={named} is a local folder: set it to a bucket (s3://bucket/prefix)"


def _plain_catalog(settings: "Settings", instance: Instance) -> str:
    shown, uri = without_login(settings.catalog_uri), settings.catalog_uri
    if uri.startswith("jdbc:postgresql:") and not _is_encrypted_postgres(uri):
        return f"TIDEMARK_CATALOG_URI={shown} sends a password without TLS: add sslmode=require to its parameters"
    if uri.startswith("http://") and any(settings.catalog.get(name) for name in _LOGIN_OPTIONS):
        return f"TIDEMARK_CATALOG_URI={shown} sends a token without TLS: use https://"
    return ""


def _is_encrypted_postgres(uri: str) -> bool:
    """Return True if a connection has no password, or TLS."""
    values = parse_qs(uri.partition("?")[2])
    has_password = "password" in values or bool(urlsplit(uri.removeprefix("jdbc:")).password)
    return not has_password or values.get("sslmode", [""])[0] in _ENCRYPTED or values.get("ssl", [""])[0] == "true"


def _plain_aws(settings: "Settings", instance: Instance) -> str:
    if not (settings.aws_endpoint_url or "").startswith("http://"):
        return ""
    return (
        f"AWS_ENDPOINT_URL={without_login(settings.aws_endpoint_url or '')} sends signed requests, session tokens and "
        "data without TLS: use https://"
    )


def _plain_kafka(settings: "Settings", instance: Instance) -> str:
    if settings.kafka_security_protocol != "SASL_PLAINTEXT":
        return ""
    return "TIDEMARK_KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT sends a password without TLS: set SASL_SSL"


def _sqlite_storage(settings: "Settings", instance: Instance) -> str:
    stored = instance.at("storage")
    apart = [instance.at(name, "module") for name in _STORAGES]
    if isinstance(stored, Mapping) and stored.keys() & {"postgres", "mysql", "custom"}:
        return ""
    if all(apart) and not any(str(module).startswith("dagster.") or module == "dagster" for module in apart):
        return ""
    return (
        f"{INSTANCE_FILE} keeps Dagster's runs in SQLite: add storage.postgres (the page Production has a whole file)"
    )


def _plain_storage(settings: "Settings", instance: Instance) -> str:
    said = f"{INSTANCE_FILE} sends PostgreSQL's password without TLS: add params: {{sslmode: require}} to postgres_db"
    places = [("storage", "postgres"), *((name, "config") for name in _STORAGES)]
    return "" if all(_is_encrypted_storage(instance, place) for place in places) else said


def _is_encrypted_storage(instance: Instance, place: tuple[str, str]) -> bool:
    if url := instance.at(*place, "postgres_url"):
        return _is_encrypted_postgres(str(url))
    login = (*place, "postgres_db")
    return not instance.at(*login, "password") or instance.at(*login, "params", "sslmode") in _ENCRYPTED


def _no_run_monitoring(settings: "Settings", instance: Instance) -> str:
    if str(instance.at("run_monitoring", "enabled")).lower() == "true":
        return ""
    return f"{INSTANCE_FILE} has no run monitoring, so lost runs never end: set run_monitoring.enabled: true"


def _laptop_launcher(settings: "Settings", instance: Instance) -> str:
    if not str(instance.at("run_launcher", "module")).startswith("dagster_tidemark.local"):
        return ""
    return (
        f"{INSTANCE_FILE} names the laptop's run launcher: remove run_launcher to start runs as child processes, "
        "or name the launcher of your cluster"
    )


def _two_limits(settings: "Settings", instance: Instance) -> str:
    if instance.at("concurrency", "runs") is None and instance.at("concurrency", "pools") is None:
        return ""
    for place in (("run_queue",), ("run_coordinator", "config")):
        for name in ("max_concurrent_runs", "tag_concurrency_limits"):
            is_dagsters = place[0] == "run_queue" or instance.at("run_coordinator", "class") == "QueuedRunCoordinator"
            if is_dagsters and instance.at(*place, name) is not None:
                return (
                    f"{INSTANCE_FILE} has {'.'.join(place)}.{name} and also concurrency, so Dagster does not start: "
                    f"move it to concurrency.runs.{name}"
                )
    return ""


RULES = (
    ProductionRule("SPARK_REMOTE", _spark),
    ProductionRule("TIDEMARK_CATALOG_URI", _sqlite_catalog),
    ProductionRule("TIDEMARK_WAREHOUSE", _local_warehouse),
    ProductionRule("TIDEMARK_CATALOG__WAREHOUSE", _local_folder_of_catalog),
    ProductionRule("TIDEMARK_CATALOG_URI", _plain_catalog, about_tls=True),
    ProductionRule("AWS_ENDPOINT_URL", _plain_aws, about_tls=True),
    ProductionRule("TIDEMARK_KAFKA_SECURITY_PROTOCOL", _plain_kafka, about_tls=True),
    ProductionRule(INSTANCE_FILE, _sqlite_storage),
    ProductionRule(INSTANCE_FILE, _two_limits),
    ProductionRule(INSTANCE_FILE, _no_run_monitoring),
    ProductionRule(INSTANCE_FILE, _laptop_launcher),
    ProductionRule(INSTANCE_FILE, _plain_storage, about_tls=True),
)


def _instance(home: Path | None) -> Instance:
    """Return the instance's file. A process without a Dagster home gets its instance from Dagster."""
    if home is None:
        return Instance(is_known=False)
    path = home / INSTANCE_FILE
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        return Instance(
            fault=f"DAGSTER_HOME={home} has no readable {INSTANCE_FILE} ({error.strerror}), so Dagster keeps runs in "
            "SQLite: write one as on the page Production"
        )


@lru_cache(maxsize=4)  # each command and each run reads the settings several times
def _read(path: Path, modified_ns: int) -> Instance:
    import yaml

    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = str(getattr(error, "problem_mark", "")).strip() or str(error)
        return Instance(fault=f"{path} is not YAML ({' '.join(place.split())}): correct it")
    if not isinstance(config, Mapping):
        return Instance(fault=f"{path} holds no mapping: expected members such as storage, as on the page Production")
    return Instance(config)
