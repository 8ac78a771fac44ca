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
from urllib.parse import parse_qs

from dagster_tidemark.catalog_options import is_location, without_login
from dagster_tidemark.secret_values import is_secret

if TYPE_CHECKING:
    from dagster_tidemark.settings import Settings

INSTANCE_FILE = "dagster.yaml"
ALLOWING = "TIDEMARK_ALLOW_WITHOUT_TLS"
"""The variable with names, separated by commas, whose connection may go without TLS."""
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_ENDPOINTS = "AWS_ENDPOINT_URL"
"""The variable with AWS's endpoint, and the prefix of the variables for each service, such as AWS_ENDPOINT_URL_S3."""
_OF_THIS_MACHINE = ("file", "local", "memory")
"""Schemes of places that other machines do not see."""
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
    remedy = "set it to your Spark Connect server (sc://host:15002)"
    if not settings.spark_remote:
        return f"SPARK_REMOTE is not set: {remedy}"
    if settings.spark_remote.startswith("sc://"):
        return ""
    shown = without_login(settings.spark_remote.partition(";")[0])  # a token follows the semicolon
    return f"SPARK_REMOTE={shown} is no address of a Spark Connect server: {remedy}"


def _sqlite_catalog(settings: "Settings", instance: Instance) -> str:
    if not settings.catalog_uri.startswith("jdbc:sqlite:"):
        return ""
    return (
        "TIDEMARK_CATALOG_URI is not set, or names SQLite, which is for a laptop: set it to "
        "jdbc:postgresql://host:5432/database?user=...&password=...&sslmode=require, or choose another catalog with "
        "TIDEMARK_CATALOG__TYPE"
    )


def _local_warehouse(settings: "Settings", instance: Instance) -> str:
    if not _is_folder(settings.warehouse):
        return ""
    return (
        f"TIDEMARK_WAREHOUSE is not set, or names a local folder ({settings.warehouse}): set it to a bucket "
        "(s3://bucket/prefix)"
    )


def _local_folder_of_catalog(settings: "Settings", instance: Instance) -> str:
    named = settings.catalog.get("warehouse", "")
    is_name = settings.catalog_options["type"] == "rest" and not is_location(named)
    if not named or is_name or not _is_folder(named):
        return ""
    return f"TIDEMARK_CATALOG__WAREHOUSE={named} is a local folder: set it to a bucket (s3://bucket/prefix)"


def _is_folder(place: str) -> bool:
    """Return True for a folder of this machine: a path, or a URI that other machines do not understand."""
    scheme, slashes, _ = place.partition("://")
    return not slashes or scheme.lower() in _OF_THIS_MACHINE


def _plain_catalog(settings: "Settings", instance: Instance) -> str:
    shown, uri = without_login(settings.catalog_uri), settings.catalog_uri
    if uri.startswith("jdbc:postgresql:") and not _is_encrypted_postgres(uri):
        return f"TIDEMARK_CATALOG_URI={shown} sends a password without TLS: add sslmode=require to its parameters"
    if _is_plain(uri) and (is_secret("", uri) or any(_is_login(*each) for each in settings.catalog.items())):
        return f"TIDEMARK_CATALOG_URI={shown} sends a token without TLS: use https://"
    return ""


def _is_login(option: str, value: str) -> bool:
    """Return True if the catalog's client sends a secret because of this option. Keys of S3 are for another server."""
    is_signed = option == "rest.sigv4-enabled" and value.lower() == "true"
    return is_signed or (is_secret(option, value) and not option.startswith("s3."))


def _plain_endpoint_of_catalog(settings: "Settings", instance: Instance) -> str:
    for option, value in sorted(settings.catalog.items()):
        if _is_plain(value) and "proxy" not in option:  # a proxy passes TLS on
            return (
                f"TIDEMARK_CATALOG names {option}={without_login(value)}, which gets logins, signed requests or data "
                "without TLS: use https://"
            )
    return ""


def _is_plain(uri: str) -> bool:
    return uri.lower().startswith("http://")


def _is_encrypted_postgres(uri: str) -> bool:
    """Return True if a connection has no password, or TLS."""
    values = parse_qs(uri.partition("?")[2])
    has_password = "password" in values or is_secret("", uri) or not {"PGPASSWORD", "PGPASSFILE"}.isdisjoint(os.environ)
    return not has_password or set(values.get("sslmode", [""])) <= set(_ENCRYPTED)


def _plain_aws(settings: "Settings", instance: Instance) -> str:
    # The SDKs read the variables for each service themselves.
    found = {name: value for name, value in os.environ.items() if name.startswith(f"{_ENDPOINTS}_")}
    for name, value in {_ENDPOINTS: settings.aws_endpoint_url or "", **dict(sorted(found.items()))}.items():
        if _is_plain(value):
            return (
                f"{name}={without_login(value)} sends signed requests, session tokens and data without TLS: "
                "use https://"
            )
    return ""


def _plain_lineage(settings: "Settings", instance: Instance) -> str:
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith("OPENLINEAGE")}
    has_login = any(is_secret(name, value) for name, value in found.items() if value)
    named = [name for name, value in found.items() if _is_plain(value)]
    if not named or not has_login:
        return ""
    return f"{named[0]}={without_login(found[named[0]])} gets a token or password without TLS: use https://"


def _plain_kafka(settings: "Settings", instance: Instance) -> str:
    if settings.kafka_security_protocol != "SASL_PLAINTEXT":
        return ""
    return "TIDEMARK_KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT sends a password without TLS: set SASL_SSL"


def _sqlite_storage(settings: "Settings", instance: Instance) -> str:
    stored = instance.at("storage")
    apart = [instance.at(name, "module") for name in _STORAGES]
    if isinstance(stored, Mapping) and "custom" in stored:
        apart = [instance.at("storage", "custom", "module")]
    has_postgres = isinstance(stored, Mapping) and "postgres" in stored
    # Dagster's own package has storages for SQLite only.
    if has_postgres or (all(apart) and not any(str(module).partition(".")[0] == "dagster" for module in apart)):
        return ""
    found = "MySQL" if isinstance(stored, Mapping) and "mysql" in stored else "SQLite"
    return (
        f"{INSTANCE_FILE} keeps Dagster's runs in {found}: add storage.postgres (the page Production has a whole file)"
    )


def _plain_storage(settings: "Settings", instance: Instance) -> str:
    said = f"{INSTANCE_FILE} sends PostgreSQL's password without TLS: add params: {{sslmode: require}} to postgres_db"
    places = [("storage", "postgres"), ("storage", "custom", "config"), *((name, "config") for name in _STORAGES)]
    return "" if all(_is_encrypted_storage(instance, place) for place in places) else said


def _is_encrypted_storage(instance: Instance, place: tuple[str, ...]) -> bool:
    if url := instance.at(*place, "postgres_url"):
        return _is_encrypted_postgres(str(url))
    login = (*place, "postgres_db")
    return not instance.at(*login, "password") or instance.at(*login, "params", "sslmode") in _ENCRYPTED


def _plain_logs(settings: "Settings", instance: Instance) -> str:
    endpoint = str(instance.at("compute_logs", "config", "endpoint_url") or "")
    if not _is_plain(endpoint):
        return ""
    return (
        f"{INSTANCE_FILE} sends signed requests and the logs of runs without TLS to {without_login(endpoint)}: use "
        "https:// in compute_logs.config.endpoint_url"
    )


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
    ProductionRule("TIDEMARK_CATALOG", _plain_endpoint_of_catalog, about_tls=True),
    ProductionRule(_ENDPOINTS, _plain_aws, about_tls=True),
    ProductionRule("OPENLINEAGE_URL", _plain_lineage, about_tls=True),
    ProductionRule("TIDEMARK_KAFKA_SECURITY_PROTOCOL", _plain_kafka, about_tls=True),
    ProductionRule(INSTANCE_FILE, _sqlite_storage),
    ProductionRule(INSTANCE_FILE, _two_limits),
    ProductionRule(INSTANCE_FILE, _no_run_monitoring),
    ProductionRule(INSTANCE_FILE, _laptop_launcher),
    ProductionRule(INSTANCE_FILE, _plain_storage, about_tls=True),
    ProductionRule(INSTANCE_FILE, _plain_logs, about_tls=True),
)


def _instance(home: Path | None) -> Instance:
    """Return the instance's file. A process without a Dagster home gets its instance from Dagster."""
    if home is None:
        return Instance(is_known=False)
    path = home.expanduser() / INSTANCE_FILE  # as Dagster does
    if not path.is_absolute():
        return Instance(fault=f"DAGSTER_HOME={home} is a relative path, which Dagster refuses: set an absolute path")
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
