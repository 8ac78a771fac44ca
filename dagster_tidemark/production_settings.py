"""What `TIDEMARK_ENVIRONMENT=production` refuses: settings for a laptop, and secrets on connections without TLS.

Belongs here: settings, and the file dagster.yaml. Does not belong here: whether a service answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from dagster_tidemark.settings import Settings

PLAINTEXT = ("catalog", "kafka", "spark")
"""Services that `TIDEMARK_PLAINTEXT` may name."""
_SECRETS = ("token", "credential", "password")


def refusals(settings: Settings) -> Iterator[str]:
    """Yield a sentence with its remedy for each setting that production cannot have."""
    if settings.catalog_uri.startswith(("jdbc:sqlite:", "sqlite:")):
        yield (
            "TIDEMARK_CATALOG_URI: the catalog is a SQLite file, which only processes of one machine can use; name "
            "PostgreSQL (jdbc:postgresql://host/lake?user=...&password=...), or another catalog by TIDEMARK_CATALOG"
        )
    if settings.warehouse.startswith(("/", "file:")):
        yield f"TIDEMARK_WAREHOUSE={settings.warehouse}: tables are in a local folder; set it to s3://bucket/prefix"
    if settings.contract_scale != 1:
        yield f"TIDEMARK_CONTRACT_SCALE={settings.contract_scale:g}: only laptops scale contracts; unset it"
    for name in ("kill_at", "stop_at"):
        if getattr(settings, name) is not None:
            yield f"TIDEMARK_{name.upper()}: only tests end processes on purpose; unset it"
    allowed = {name.strip() for name in (settings.plaintext or "").split(",") if name.strip()}
    if unknown := sorted(allowed.difference(PLAINTEXT)):
        yield f"TIDEMARK_PLAINTEXT: expected some of {', '.join(PLAINTEXT)}, found {', '.join(unknown)}"
    for service, said in _plaintext(settings):
        if service not in allowed:
            yield f"{said}, or allow it by TIDEMARK_PLAINTEXT={service}"
    if settings.dagster_home is not None:
        yield from _of_dagster(settings.dagster_home)


def _plaintext(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield services that get a secret over a connection without TLS, each with a sentence."""
    remote = settings.spark_remote or ""
    if "token=" in remote and "use_ssl=true" not in remote.replace(" ", "").lower():
        yield "spark", "SPARK_REMOTE: its token is sent without TLS; add use_ssl=true"
    if settings.kafka_bootstrap_servers and settings.kafka_security_protocol == "SASL_PLAINTEXT":
        yield "kafka", "TIDEMARK_KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT: the password is sent without TLS; use SASL_SSL"
    uri = settings.catalog_uri
    has_secret = any(word in name for name in settings.catalog for word in _SECRETS) or "@" in urlsplit(uri).netloc
    if uri.startswith("http://") and has_secret:
        yield "catalog", "TIDEMARK_CATALOG: its secret is sent without TLS; use an https:// address"
    if uri.startswith("jdbc:postgresql:") and "sslmode=disable" in uri:
        yield "catalog", "TIDEMARK_CATALOG_URI: sslmode=disable sends the password without TLS; use sslmode=require"


def _of_dagster(home: Path) -> Iterator[str]:
    """Yield what is wrong with the dagster.yaml of a Dagster home; nothing if this process has no such file."""
    path = home / "dagster.yaml"
    try:
        found: Any = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return
    except (OSError, yaml.YAMLError) as error:
        yield f"{path}: it cannot be read: {str(error).splitlines()[0]}"
        return
    found = found if isinstance(found, dict) else {}
    storage = found.get("storage")
    if not any(name in found for name in ("run_storage", "event_log_storage")) and (
        not isinstance(storage, dict) or "sqlite" in storage
    ):
        yield f"{path}: Dagster's storage is SQLite; declare storage: postgres: (see the page Production)"
    monitoring = found.get("run_monitoring")
    if not isinstance(monitoring, dict) or monitoring.get("enabled") is not True:
        yield f"{path}: a run whose process is gone would never end; declare run_monitoring: enabled: true"
    for name in ("run_launcher", "run_coordinator"):
        module = str((found.get(name) or {}).get("module", "")) if isinstance(found.get(name), dict) else ""
        if module.startswith("dagster_tidemark.local"):
            yield f"{path}: {name} is the laptop's ({module}); remove it, or declare the one of your platform"
    limits = (found.get("concurrency") or {}).get("runs") if isinstance(found.get("concurrency"), dict) else None
    if isinstance(limits, dict) and "max_concurrent_runs" in limits and "run_queue" in found:
        yield f"{path}: run_queue conflicts with concurrency: runs; remove run_queue"
