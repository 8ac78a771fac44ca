"""The console logs of runs and sensors, and what Dagster adds to their records."""

import logging

from dagster import _loggers
from dagster._core import log_manager
from dagster._core.definitions import instigation_logger
from dagster._utils import log

from dagster_tidemark.dagster_internals.partitions import partition_ends
from dagster_tidemark.json_logs import write_json_logs
from dagster_tidemark.settings import Settings


def use_log_format(settings: Settings) -> None:
    """Write the logs of this process as the settings say: of a code server, or of a run."""
    if settings.log_format == "json":
        format_console_logs(write_json_logs(facts_of))


def format_console_logs(formatter: logging.Formatter) -> None:
    """Give the console logs of all further runs and sensor ticks in this process a formatter.

    Dagster has no setting for it: without a configuration in each run's launch, a run gets the colored logger.
    """

    def _create(name: str, level: str | int) -> logging.Logger:
        made = log.create_console_logger(name, level)
        for handler in made.handlers:
            handler.setFormatter(formatter)
        return made

    for module in (_loggers, instigation_logger):
        setattr(module, log.create_console_logger.__name__, _create)


def facts_of(record: logging.LogRecord) -> dict[str, str]:
    """Return what Dagster knows about a record: message, run id, step, asset, partition, error; empty for others."""
    if not log_manager.has_log_record_metadata(record):
        return {}
    meta = log_manager.get_log_record_metadata(record)
    event, tags = meta.get("dagster_event"), meta.get("job_tags") or {}
    found = {
        "message": meta.get("orig_message") or record.getMessage(),
        "run_id": meta.get("run_id"),
        "step": meta.get("step_key"),
        "partition": "...".join(filter(None, partition_ends(tags))),
    }
    if event is not None:
        key, data = event.asset_key, event.event_specific_data
        error = getattr(data, "error", None)
        found |= {
            "event": event.event_type_value,
            "asset": key.to_user_string() if key is not None else None,
            "partition": event.partition or found["partition"],
            "exception": error.to_string() if error is not None else None,
        }
    return {name: str(value) for name, value in found.items() if value}
