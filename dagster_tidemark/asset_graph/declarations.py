"""Reads and validates each declaration of an asset's automation.

Declarations are a freshness policy, the tags `tidemark/pace` and `tidemark/requires`, the metadata `ripple_days`,
`use_latest`, `optional` and `on_missing` of a dependency, a backfill policy, and promises about sources. Belongs here:
the valid values, errors for invalid ones, and where they are kept. Does not belong here: finding declarations in
Dagster's graph (`asset_graph.planner_graph`), and the meaning of promises (`planner.contracts`).

Dagster builds the job of a run from the assets of the run and their inputs. If two of these assets read the same input
and the run does not build it, Dagster requires both dependencies to have equal metadata. Dagster cannot create the run
if one dependency has `ripple_days: 1` and the other has `use_latest`. The planner's metadata is therefore moved from
the dependency to the asset that reads the input.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
from cronsim import CronSim

from dagster_tidemark.dagster_internals.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy, cron_ticks
from dagster_tidemark.errors import Terminal
from dagster_tidemark.planner.contracts import Contract, CronContract, InputPromise, LagContract
from dagster_tidemark.planner.deliveries import OnMissing
from dagster_tidemark.tags import BLOCKING_CHECKS, READS

RIPPLE_DAYS = "ripple_days"
USE_LATEST = "use_latest"
"""The input only has to exist, so that its changes do not make the reader stale."""
OPTIONAL = "optional"
"""A partition may be built although the input has no data for it."""
ON_MISSING = "on_missing"
ASAP = "asap"
EVERY_INPUT_CHANGED = "every_input_changed"

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_COMPARED = 20  # number of compared ticks
_FROM = datetime(2026, 1, 1, tzinfo=UTC)


class Refused(Terminal):
    """A declaration is not supported by the planner. The message names the declaration and an alternative."""


def in_one_line(error: Exception) -> str:
    """Return an error of user code as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def contract_of(policy: dg.FreshnessPolicy | None) -> Contract | None:
    """Return the contract of a freshness policy.

    Raises:
        Refused: the planner does not support this kind of policy.
    """
    match policy:
        case None:
            return None
        case TimeWindowFreshnessPolicy():
            warn = policy.warn_window.to_timedelta().total_seconds() if policy.warn_window else None
            return LagContract(policy.fail_window.to_timedelta().total_seconds(), warn)
        case CronFreshnessPolicy():
            schedule = _plain(policy.deadline_cron, policy.timezone)
            return CronContract(schedule, policy.lower_bound_delta.total_seconds(), policy.timezone)
    raise Refused(f"a {type(policy).__name__} is not supported; use FreshnessPolicy.time_window or .cron")


def _plain(declared: str, timezone: str) -> str:
    """Return a cron schedule with five fields.

    Raises:
        Refused: the schedule is invalid, or the planner and Dagster do not read it alike.
    """
    schedule = _ALIASES.get(declared.strip().lower(), declared)
    try:
        ZoneInfo(timezone)
        ours = [tick.timestamp() for tick in islice(CronSim(schedule.upper(), _FROM), _COMPARED)]
        theirs = _ticks(declared)
    except Exception as error:  # the libraries raise many types for a wrong schedule or time zone
        raise Refused(f"FreshnessPolicy.cron({declared!r}, timezone={timezone!r}): {in_one_line(error)}") from error
    if not ours or ours != theirs:
        raise Refused(f"FreshnessPolicy.cron({declared!r}): write it in five fields of numbers, like '0 9 * * 1-5'")
    return schedule.upper()


def _ticks(schedule: str) -> list[float]:
    # Dagster's ticks include the start time; CronSim's begin after it.
    found = (tick.timestamp() for tick in cron_ticks(schedule, _FROM.timestamp()))
    return list(islice((at for at in found if at > _FROM.timestamp()), _COMPARED))


def tagged(tags: Mapping[str, str], tag: str, value: str) -> bool:
    """Return True if an asset has a tag.

    Args:
        value: The only valid value of the tag.

    Raises:
        Refused: the tag has another value.
    """
    if tags.get(tag, value) != value:
        raise Refused(f"tag {tag}={tags[tag]!r} is unknown; expected {value!r}")
    return tag in tags


def ripple_days_of(metadata: Mapping[str, Any], name: str, *, whole: bool, timed: bool) -> int | None:
    """Return the number of the reader's days that a change of an input makes stale; None means all days.

    Args:
        name: The input's name, for messages.
        whole: True if the input has no partitions.
        timed: True if the reader has time partitions.

    Raises:
        Refused: the value is not a number of days, or the input has partitions, or the reader has no time partitions.
    """
    declared = _value(metadata.get(RIPPLE_DAYS))
    if declared is None:
        return None
    text = str(declared).strip()
    if isinstance(declared, bool) or not (text.isdecimal() and int(text) > 0):
        raise Refused(f"{RIPPLE_DAYS}={declared!r} of {name}: expected a whole number of days above 0")
    if not whole:
        raise Refused(f"{RIPPLE_DAYS} of {name} is for an input without partitions; use a partition mapping")
    if not timed:
        raise Refused(f"{RIPPLE_DAYS} of {name} needs a reader with time partitions")
    return int(text)


def on_missing_of(metadata: Mapping[str, Any], name: str) -> str:
    """Return what a reader does while an expected delivery of an input is missing; empty if nothing is declared.

    Raises:
        Refused: the value is neither `wait` nor `build`.
    """
    declared = _value(metadata.get(ON_MISSING))
    if declared is not None and declared not in list(OnMissing):
        raise Refused(f"{ON_MISSING}={declared!r} of {name}: expected 'wait' or 'build'")
    return str(declared or "")


def flag_of(metadata: Mapping[str, Any], flag: str, name: str) -> bool:
    """Return the value of `USE_LATEST` or `OPTIONAL` for an input.

    Raises:
        Refused: the value is neither true nor false.
    """
    declared = _value(metadata.get(flag))
    known = {"none": False, "false": False, "0": False, "true": True, "1": True}
    if str(declared).strip().lower() not in known:
        raise Refused(f"{flag}={declared!r} of {name}: expected true or false")
    return known[str(declared).strip().lower()]


def checks_elsewhere_of(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of an asset's blocking checks that other code locations declare and evaluate.

    Raises:
        Refused: the value is not a list of names.
    """
    declared = _value(metadata.get(BLOCKING_CHECKS, []))
    if not isinstance(declared, list | tuple) or not all(isinstance(name, str) and name for name in declared):
        raise Refused(f"metadata {BLOCKING_CHECKS}={declared!r}: expected a list of names of checks")
    return frozenset(declared)


def most_of(policy: dg.BackfillPolicy | None) -> int | None:
    """Return the maximum number of partitions in a run; None means no limit. Dagster's default limit is one."""
    return 1 if policy is None else policy.max_partitions_per_run or None


def _value(declared: Any) -> Any:
    return declared.value if isinstance(declared, dg.MetadataValue) else declared


_declared: dict[str, tuple[InputPromise, ...]] = {}
"""Promises by code location. They hold functions and calendars, which no metadata of an asset can hold."""


def declare_promises(location: str, promises: Sequence[InputPromise]) -> None:
    """Remember the promises that a code location declares. They replace its earlier ones."""
    _declared[location] = tuple(promises)


def promises_of(source: str) -> tuple[InputPromise, ...]:
    """Return the promises about a source."""
    return tuple(each for every in _declared.values() for each in every if each.source == source)


_OURS = (RIPPLE_DAYS, USE_LATEST, OPTIONAL, ON_MISSING)


def with_dep_metadata_moved(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the spec after moving the planner's metadata from its dependencies to the asset."""
    ours = {dep.asset_key.to_user_string(): _only(dep, ours=True) for dep in spec.deps}
    declared = {read: said for read, said in ours.items() if said}
    if not declared:
        return spec
    deps = [
        dg.AssetDep(dep.asset_key, partition_mapping=dep.partition_mapping, metadata=_only(dep, ours=False))
        for dep in spec.deps
    ]
    return spec.replace_attributes(deps=deps, metadata={**spec.metadata, READS: declared})


def dep_metadata(spec: dg.AssetSpec, parent: dg.AssetKey) -> dict[str, Any]:
    """Return the metadata of a dependency, from the dependency itself and from the asset."""
    said = spec.metadata.get(READS, {})
    moved: Mapping[str, Any] = getattr(said, "value", said)  # Dagster may have wrapped it
    found = dict(moved.get(parent.to_user_string(), {}))
    for dep in spec.deps:
        if dep.asset_key == parent:
            found |= dep.metadata or {}
    return found


def _only(dep: dg.AssetDep, *, ours: bool) -> dict[str, Any]:
    return {name: value for name, value in (dep.metadata or {}).items() if (name in _OURS) is ours}
