"""All settings of a deployment, read from environment variables.

Belongs here: names, defaults and messages about wrong values. Does not belong here: anything that opens
a connection or starts a process.
"""

import os
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableJson

from dagster_tidemark.catalog_options import (
    as_variable,
    flat,
    jdbc_login,
    merged,
    variables_of_pyiceberg,
    without_login,
)
from dagster_tidemark.code_server_log import logged_in_one_line
from dagster_tidemark.environment import RESERVED, declared_variables, may_be_declared
from dagster_tidemark.errors import Terminal
from dagster_tidemark.production_rules import refusals
from dagster_tidemark.project_folder import NoProject, code_location, found_project, project_root

_LAPTOP_SCALE = 0.05  # shows an hour's contract in three minutes
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_OPTION = "TIDEMARK_CATALOG__"  # a variable for each option of the catalog, by Iceberg's name
_INTERNAL = {"TIDEMARK_STARTED_BY"}  # set by the platform for its own processes
NO_PACKAGE = "unnamed"  # the code location of a process that finds no project
LOCAL_KEY = "tidemark"  # the local cloud ignores keys, but every AWS client needs one

Boundary = Literal[
    "after_receive",
    "after_listing",
    "after_observation",
    "before_delete",
    "after_delete",
    "between_quarantine_and_table",
    "before_commit",
    "after_commit",
    "before_recorded",
]
"""Points where `TIDEMARK_KILL_AT` can kill a process (`failpoints`), in the order of a file's processing."""
PreviewBoundary = Literal[
    "preview_branched", "preview_decided", "preview_quarantined", "preview_committed", "preview_reported"
]
"""The same for publishing a preview. After its branches exist, each table passes four steps: its partitions to publish
are decided, its entries are in the quarantine, its rows are in the table, its partitions are reported."""
StreamBoundary = Literal[
    "stream_received",
    "stream_rejected",
    "stream_branched",
    "stream_committed",
    "stream_outbox",
    "stream_published",
    "stream_reported",
    "stream_acknowledged",
]
"""The same for a batch of messages, each after the step in its name. Only backlogs pass `stream_branched`."""
MaintenanceBoundary = Literal["maintenance_decided", "maintenance_committed", "maintenance_recorded"]
"""The same for each action of maintenance: before it, after it, and after its record."""

FIFO = ".fifo"
"""Ending of the name of each FIFO queue."""
NO_FIFO = (
    "FIFO queues are not supported; use a standard queue (messages need no order, and repeats have no effect; a FIFO "
    "topic of SNS can send to a standard queue)"
)


class SettingsError(Terminal):
    """A setting has a value that cannot be used. The message names the variable and the remedy."""


class Settings(BaseSettings):
    """Settings of one deployment. Field `x` is read from `TIDEMARK_X`, unless the field names another variable."""

    model_config = SettingsConfigDict(
        env_prefix="TIDEMARK_",
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        hide_input_in_errors=True,  # pydantic's text of an error quotes passwords of other settings
    )

    environment: Literal["local", "production"] = "local"
    project: Path | None = Field(default_factory=found_project)  # the folder with the user's pyproject.toml
    code_location: str = Field(default="", pattern=r"^([a-z_]\w*(\.[a-z_]\w*)*)?$")  # by default the project's package
    state_dir: Path = Path(".tidemark")  # relative to the project
    jars_dir: Path = Path("jars")  # relative to state_dir; absolute when several platforms share one download
    port_ui: int = Field(default=3000, ge=1, le=65535)
    port_cloud: int = Field(default=3001, ge=1, le=65535)
    port_spark: int = Field(default=15002, ge=1, le=65535)
    port_kafka: int = Field(default=9092, ge=1, le=65535)

    spark_memory: str = Field(default="2g", pattern=r"^[1-9]\d*[mg]$")  # heap of the platform's Spark server

    log_format: Literal["text", "json"] = "text"  # json: one object per line (`json_logs`)
    ui_url: str = ""  # of Dagster's UI, for links in messages; by default that of the laptop platform

    landing_bucket: str = "landing"
    events_queue: str = "landing-events"
    kafka_bootstrap_servers: str | None = None  # host:port,...; unset: Kafka is off
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    kafka_username: str | None = None
    kafka_password: str | None = Field(default=None, repr=False)
    kafka_ca_location: Path | None = None  # a PEM file; unset: the authorities that this machine trusts
    catalog: dict[str, str] = Field(default_factory=dict, repr=False)  # Iceberg's own options; may hold secrets
    catalog_uri: str = Field(default="", repr=False)  # the short form of its `uri`
    warehouse: str = ""  # the folder or bucket of tables and models
    start_date: date = date(2026, 9, 28)
    allow_without_tls: str | None = None  # names of connections, separated by commas (`production_rules`)
    contract_scale: float = Field(default=1.0, gt=0)  # scales lag windows in the planner, never a time of day
    kill_at: str | None = None  # <boundary>:<n>; only tests set it
    stop_at: str | None = None  # the same; the process stops (SIGSTOP) and may be continued

    spark_remote: str | None = Field(  # may hold a token
        default=None, repr=False, validation_alias=AliasChoices("SPARK_REMOTE", "spark_remote")
    )
    dagster_home: Path | None = Field(default=None, validation_alias=AliasChoices("DAGSTER_HOME", "dagster_home"))
    aws_endpoint_url: str | None = Field(
        default=None, validation_alias=AliasChoices("AWS_ENDPOINT_URL", "aws_endpoint_url")
    )
    aws_access_key_id: str | None = Field(
        default=None, validation_alias=AliasChoices("AWS_ACCESS_KEY_ID", "aws_access_key_id")
    )
    aws_secret_access_key: str | None = Field(
        default=None, repr=False, validation_alias=AliasChoices("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key")
    )
    aws_session_token: str | None = Field(
        default=None, repr=False, validation_alias=AliasChoices("AWS_SESSION_TOKEN", "aws_session_token")
    )
    aws_region: str = Field(
        default="us-east-1", validation_alias=AliasChoices("AWS_REGION", "AWS_DEFAULT_REGION", "aws_region")
    )

    @field_validator("landing_bucket")
    @classmethod
    def _is_a_bucket(cls, value: str) -> str:
        if not _BUCKET.fullmatch(value):
            raise ValueError("a bucket name has 3 to 63 of a-z, 0-9, . and -, and begins and ends with a-z or 0-9")
        return value

    @field_validator("events_queue")
    @classmethod
    def _is_a_standard_queue(cls, value: str) -> str:
        if value.endswith(FIFO):
            raise ValueError(NO_FIFO)
        return value

    @field_validator("start_date")
    @classmethod
    def _starts_on_a_monday(cls, value: date) -> date:
        if value > datetime.now(UTC).date():
            raise ValueError(f"{value} is in the future; give the first day that may have data")
        if value.weekday() != 0:
            raise ValueError(f"{value} is a {value:%A}; weeks begin on Monday, so give a Monday")
        return value

    @field_validator("kill_at", "stop_at")
    @classmethod
    def _names_a_boundary(cls, value: str | None) -> str | None:
        boundary, _, count = (value or "").partition(":")
        known = tuple(
            name for of in (Boundary, PreviewBoundary, StreamBoundary, MaintenanceBoundary) for name in get_args(of)
        )
        if value is not None and not (boundary in known and count.isdecimal() and int(count)):
            raise ValueError(f"expected <boundary>:<n>, with one of {', '.join(known)} and n of at least 1")
        return value

    @field_validator("catalog", mode="before")
    @classmethod
    def _has_icebergs_names(cls, value: object) -> dict[str, str]:
        return flat(value)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_unset(cls, values: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in values.items() if value != ""}

    @model_validator(mode="after")
    def _has_a_port_each(self) -> "Settings":
        taken: dict[int, str] = {}
        for name in ("port_ui", "port_cloud", "port_spark", "port_kafka"):
            port = getattr(self, name)
            if port in taken:
                raise ValueError(
                    f"{_variable(name)}={port}: {_variable(taken[port])} is the same port; give each its own"
                )
            taken[port] = name
        return self

    @model_validator(mode="after")
    def _knows_who_reads_kafka(self) -> "Settings":
        if self.kafka_security_protocol.startswith("SASL_"):
            for name in ("kafka_username", "kafka_password"):
                if getattr(self, name) is None:
                    raise ValueError(
                        f"{_variable(name)} is not set, and {_variable('kafka_security_protocol')}="
                        f"{self.kafka_security_protocol} needs it"
                    )
        return self

    @model_validator(mode="after")
    def _resolve(self) -> "Settings":
        project = self.project and self.project.expanduser().absolute()
        state = (project or Path.cwd()) / self.state_dir.expanduser()
        # WAL and a busy timeout let several processes commit to one SQLite catalog without losing a commit.
        default = f"jdbc:sqlite:{state}/catalog.db?journal_mode=WAL&busy_timeout=30000"
        catalog, catalog_uri, warehouse = merged(self.catalog, self.catalog_uri, self.warehouse, default=default)
        resolved: dict[str, object] = {
            "project": project,
            "code_location": self.code_location or (_package_of(project) if project else NO_PACKAGE),
            "state_dir": state,
            "jars_dir": state / self.jars_dir.expanduser(),
            "catalog": catalog,
            "catalog_uri": _absolute_catalog(catalog_uri),
            "warehouse": _absolute_warehouse(warehouse or str(state / "warehouse")),
            "kafka_ca_location": self.kafka_ca_location and self.kafka_ca_location.expanduser().absolute(),
        }
        if self.environment == "local":
            resolved["ui_url"] = self.ui_url or f"http://127.0.0.1:{self.port_ui}"
            own = f"http://127.0.0.1:{self.port_cloud}"
            resolved["aws_endpoint_url"] = self.aws_endpoint_url or own
            if resolved["aws_endpoint_url"] == own:
                # A developer's real keys must not appear in files and command lines of a laptop platform.
                resolved["aws_access_key_id"] = resolved["aws_secret_access_key"] = LOCAL_KEY
                resolved["aws_session_token"] = None
        for name, value in resolved.items():
            object.__setattr__(self, name, value)
        return self

    def __hash__(self) -> int:  # pydantic's hash would need a hash of the mapping `catalog`, which has none
        return hash(tuple(value for name, value in self if name != "catalog"))

    @property
    def root(self) -> Path:
        """The project's folder.

        Raises:
            NoProject: there is none. A code server works without one, commands do not.
        """
        return self.project or project_root()

    @property
    def code_root(self) -> Path:
        """Import root of the code location: `src` in the project if it holds the package, else the project's folder.

        Raises:
            NoProject: there is no project.
        """
        below = self.root / "src"
        first = self.code_location.partition(".")[0]
        return below if (below / first).is_dir() or (below / f"{first}.py").is_file() else self.root

    @property
    def own_cloud(self) -> bool:
        """True if the endpoint is the local cloud of this platform."""
        return self.aws_endpoint_url == f"http://127.0.0.1:{self.port_cloud}"

    @property
    def own_spark(self) -> bool:
        """True if the Spark server is the one that this platform starts."""
        return self.spark_remote in (f"sc://127.0.0.1:{self.port_spark}", f"sc://localhost:{self.port_spark}")

    @property
    def own_kafka(self) -> bool:
        """True if the Kafka broker is the one that this platform starts."""
        return self.kafka_bootstrap_servers == f"127.0.0.1:{self.port_kafka}"

    @property
    def platform_home(self) -> Path:
        """The Dagster home that `tidemark up` creates."""
        return self.state_dir / "dagster"

    def aws_options(self) -> dict[str, Any]:
        """Return the options of an AWS client: `boto3.client("s3", **settings.aws_options())`.

        They contain keys only for the local cloud. Any other client finds keys through the SDK, and renews them when
        they expire. It could not renew keys that it was given.
        """
        options = {"endpoint_url": self.aws_endpoint_url, "region_name": self.aws_region}
        keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY}
        return options | (keys if self.own_cloud else {})

    def kafka_options(self) -> dict[str, str]:
        """Return the options of a Kafka client, by librdkafka's names; empty if Kafka is off."""
        if self.kafka_bootstrap_servers is None:
            return {}
        options = {"bootstrap.servers": self.kafka_bootstrap_servers, "security.protocol": self.kafka_security_protocol}
        if self.kafka_security_protocol.startswith("SASL_"):
            options |= {
                "sasl.mechanism": self.kafka_sasl_mechanism,
                "sasl.username": self.kafka_username or "",
                "sasl.password": self.kafka_password or "",
            }
        if self.kafka_ca_location is not None and self.kafka_security_protocol.endswith("SSL"):
            options["ssl.ca.location"] = str(self.kafka_ca_location)
        return options

    @property
    def catalog_options(self) -> dict[str, str]:
        """The options of the catalog, by Iceberg's names: type, `uri`, `warehouse`, and the given ones."""
        kind = self.catalog.get("type", "jdbc")
        options = {"type": kind, "uri": self.catalog_uri}
        if kind != "rest":  # a REST catalog's warehouse is a name, which the deployment gives
            options["warehouse"] = self.warehouse
        return {name: value for name, value in {**options, **self.catalog}.items() if value}

    @property
    def catalog_login(self) -> tuple[str, str | None]:
        """The catalog's URI without its password, and the line of a pgpass file that holds it."""
        return jdbc_login(self.catalog_uri)

    @property
    def catalog_shown(self) -> str:
        """The catalog for messages: its URI without login, or its type."""
        return without_login(self.catalog_uri) or self.catalog_options["type"]

    def for_platform(self, *, with_kafka: bool = False) -> "Settings":
        """Return the settings of `tidemark up`.

        The platform has its own Dagster home. Unless a variable says otherwise, it has its own Spark server
        (`SPARK_REMOTE`) and shorter contracts (`TIDEMARK_CONTRACT_SCALE`).

        Args:
            with_kafka: True to name its own Kafka broker, without a password, unless
                `TIDEMARK_KAFKA_BOOTSTRAP_SERVERS` names another.
        """
        remote = self.spark_remote or f"sc://127.0.0.1:{self.port_spark}"
        scale = self.contract_scale if "contract_scale" in self.model_fields_set else _LAPTOP_SCALE
        update = {"spark_remote": remote, "dagster_home": self.platform_home, "contract_scale": scale}
        if with_kafka and self.kafka_bootstrap_servers in (None, f"127.0.0.1:{self.port_kafka}"):
            update |= {
                "kafka_bootstrap_servers": f"127.0.0.1:{self.port_kafka}",
                "kafka_security_protocol": "PLAINTEXT",
                "kafka_username": None,
                "kafka_password": None,
            }
        return self.model_copy(update=update)

    def exports(self) -> dict[str, str]:
        """Return the environment variables that give any process these settings. Unset settings are left out."""
        tidemark = {name: value for name, value in self.model_dump().items() if name not in _FOREIGN}
        values: dict[str, object] = {f"TIDEMARK_{name.upper()}": value for name, value in tidemark.items()}
        values |= {variable: getattr(self, name) for name, variable in _FOREIGN.items()}
        values["AWS_DEFAULT_REGION"] = self.aws_region
        values["TIDEMARK_CATALOG"] = as_variable(self.catalog)
        values["TIDEMARK_CATALOG_URI"] = self.catalog_uri or None
        values |= variables_of_pyiceberg(self.catalog_options)
        return {name: str(value) for name, value in values.items() if value is not None}


_FOREIGN = {
    "spark_remote": "SPARK_REMOTE",
    "dagster_home": "DAGSTER_HOME",
    "aws_endpoint_url": "AWS_ENDPOINT_URL",
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "aws_region": "AWS_REGION",
}
"""Fields whose variables belong to other programs."""


@logged_in_one_line()
def load_settings(*, may_be_unfit: bool = False) -> Settings:
    """Read the settings from the environment.

    Args:
        may_be_unfit: True to accept settings that `TIDEMARK_ENVIRONMENT=production` refuses. Only commands that report
            the refusals, or that connect to no service, need it.

    Raises:
        SettingsError: a value is wrong, or production refuses it. The message is one line that names the variable.
    """
    settings = _read_settings()
    if not may_be_unfit and (found := refusals(settings)):
        more = f" (and {len(found) - 1} more: `tidemark doctor` lists all)" if len(found) > 1 else ""
        raise SettingsError(f"TIDEMARK_ENVIRONMENT=production: {found[0]}{more}")
    return settings


def _read_settings() -> Settings:
    _refuse_unknown_names(filter(may_be_declared, os.environ), "there is no such setting")
    try:
        return Settings()
    except UnreadableJson as error:
        raise SettingsError('TIDEMARK_CATALOG: expected a JSON object, such as {"type": "rest"}') from error
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:  # the error is about several settings, and its message names them
            raise SettingsError(first["msg"].removeprefix("Value error, ")) from error
        field = str(first["loc"][0])
        if field == "catalog":  # its value may hold secrets
            raise SettingsError(f"TIDEMARK_CATALOG: {first['msg'].removeprefix('Value error, ')}") from error
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{_variable(field)}={first.get('input')}: {message}") from error


def _package_of(project: Path) -> str:
    if package := code_location(project):
        return package
    raise NoProject(
        f'{project / "pyproject.toml"} names no code location: add package = "..." to its [tool.tidemark], '
        "or set TIDEMARK_CODE_LOCATION"
    )


def refuse_undeclared_names() -> None:
    """Raise if a variable with the library's prefix is neither a setting nor read by a declaration (`from_env`).

    Call it after all declarations are imported: `load_settings` accepts names that a declaration may read.

    Raises:
        SettingsError: a variable is unknown. The message names it, and the most similar known one.
    """
    _refuse_unknown_names(
        set(declared_variables()), "there is no such setting, and no declaration reads it by from_env"
    )


def _refuse_unknown_names(declared: Iterable[str], said: str) -> None:
    # A misspelled name would silently leave its setting at the default.
    known = {_variable(name) for name in Settings.model_fields if name not in _FOREIGN} | set(declared)
    for name in sorted(os.environ):
        if name.startswith(RESERVED) and name not in known | _INTERNAL and not name.startswith(_OPTION):
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; `tidemark env` lists all settings"
            raise SettingsError(f"{name}: {said}{hint}")


def _absolute_catalog(uri: str) -> str:
    if not uri.startswith("jdbc:sqlite:"):
        return uri
    path, mark, query = uri.removeprefix("jdbc:sqlite:").partition("?")
    return f"jdbc:sqlite:{Path(path).expanduser().absolute()}{mark}{query}"


def _absolute_warehouse(warehouse: str) -> str:
    if "://" in warehouse and not warehouse.startswith("file:"):
        return warehouse
    path = warehouse.removeprefix("file:")
    return str(Path("/" + path.lstrip("/") if path.startswith("/") else path).expanduser().absolute())


def _variable(field: str) -> str:
    return field if field.isupper() else f"TIDEMARK_{field.upper()}"
