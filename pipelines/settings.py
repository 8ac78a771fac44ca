"""Every setting of a deployment, read from the environment in this one place.

Belongs here: names, defaults and the meaning of a wrong value. Does not belong here: anything that opens
a connection or starts a process.
"""

from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

CHECKOUT = Path(__file__).resolve().parent.parent


class SettingsError(Exception):
    """A setting has a value that cannot be used. The message names the variable and the remedy."""


class Settings(BaseSettings):
    """The settings of one deployment. Field `x` is the variable `TIDEMARK_X`, unless it names another."""

    model_config = SettingsConfigDict(env_prefix="TIDEMARK_", frozen=True, extra="ignore", populate_by_name=True)

    environment: Literal["local", "production"] = "local"
    state_dir: Path = CHECKOUT / ".tidemark"
    jars_dir: Path = Path("jars")  # relative to state_dir; absolute when several platforms share one download
    port_ui: int = Field(default=3000, ge=1, le=65535)
    port_cloud: int = Field(default=3001, ge=1, le=65535)
    port_spark: int = Field(default=15002, ge=1, le=65535)

    landing_bucket: str = "landing"
    events_queue: str = "landing-events"
    catalog_uri: str = ""
    warehouse: str = ""
    start_date: date = date(2026, 9, 28)

    spark_remote: str | None = Field(default=None, validation_alias=AliasChoices("SPARK_REMOTE", "spark_remote"))
    dagster_home: Path | None = Field(default=None, validation_alias=AliasChoices("DAGSTER_HOME", "dagster_home"))
    aws_endpoint_url: str | None = Field(
        default=None, validation_alias=AliasChoices("AWS_ENDPOINT_URL", "aws_endpoint_url")
    )
    aws_access_key_id: str | None = Field(
        default=None, validation_alias=AliasChoices("AWS_ACCESS_KEY_ID", "aws_access_key_id")
    )
    aws_secret_access_key: str | None = Field(
        default=None, validation_alias=AliasChoices("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key")
    )
    aws_region: str = Field(
        default="us-east-1", validation_alias=AliasChoices("AWS_REGION", "AWS_DEFAULT_REGION", "aws_region")
    )

    @field_validator("start_date")
    @classmethod
    def _starts_on_a_monday(cls, value: date) -> date:
        if value.weekday() != 0:
            raise ValueError(f"{value} is a {value:%A}; weeks begin on Monday, so the first day has to be one")
        return value

    @model_validator(mode="before")
    @classmethod
    def _empty_means_unset(cls, values: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in values.items() if value != ""}

    @model_validator(mode="after")
    def _resolve(self) -> "Settings":
        resolved: dict[str, object] = {"state_dir": self.state_dir.expanduser().absolute()}
        state = resolved["state_dir"]
        assert isinstance(state, Path)
        resolved["jars_dir"] = state / self.jars_dir.expanduser()
        # WAL and a busy timeout let several processes commit to one SQLite catalog without losing a commit.
        resolved["catalog_uri"] = self.catalog_uri or (
            f"jdbc:sqlite:{state}/catalog.db?journal_mode=WAL&busy_timeout=30000"
        )
        resolved["warehouse"] = self.warehouse.removeprefix("file:") or str(state / "warehouse")
        for name, value in resolved.items():
            object.__setattr__(self, name, value)
        return self


def load_settings() -> Settings:
    """Read the environment.

    Raises:
        SettingsError: a value is wrong; the message is one line that names the variable.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "environment"
        raise SettingsError(f"{_variable(field)}={first.get('input')}: {first['msg']}") from error


def _variable(field: str) -> str:
    return field if field.isupper() else f"TIDEMARK_{field.upper()}"
