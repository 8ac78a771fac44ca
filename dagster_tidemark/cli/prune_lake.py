"""Second part of `tidemark prune`: deletes quarantine entries of gone files, and expired previews.

Does not belong here: the choice of entries (`retention.gone_files`) and of previews (`preview.expired`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark import location
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.stored_tables import opened_catalog
from dagster_tidemark.preview import expired
from dagster_tidemark.retention import gone_files
from dagster_tidemark.retention.prune import Amount
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import landing_bucket

ENTRIES, PREVIEWS = "quarantine entries of files that are gone", "expired previews"


@dataclass
class LakePruning:
    """The result of pruning the lake, or of a dry run.

    Args:
        amounts: Amount of deleted records, by kind.
        kept: A line for each preview that stays although it expired.
        faults: A line for each kind of records that stays, because it is unknown which may go.
    """

    amounts: dict[str, Amount] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def prune_lake(settings: Settings, instance: DagsterInstance, graph: Any, before: float, *, apply: bool) -> LakePruning:
    """Delete old records of the lake, or count them. A kind that cannot be decided stays, and is named.

    Args:
        graph: Dagster's asset graph of the code location.
        before: Records from before this time are old (Unix seconds).
    """
    found = LakePruning()
    bucket = landing_bucket(settings)
    kinds: Mapping[str, Callable[[], Amount]] = {
        ENTRIES: lambda: Amount(
            gone_files.prune_entries(settings, bucket, instance, graph, location.feeds(settings), before, apply=apply)
        ),
        PREVIEWS: lambda: _previews(settings, before, found.kept, apply=apply),
    }
    for kind, pruned in kinds.items():
        try:
            found.amounts[kind] = pruned()
        except Exception as error:  # the catalog, the store or the bucket fails, with errors of any type
            found.amounts[kind] = Amount()
            found.faults.append(f"{kind} stay: {error_line(error)}")
    return found


def _previews(settings: Settings, before: float, kept: list[str], *, apply: bool) -> Amount:
    found = expired.find(settings.state_dir, before)
    kept += found.kept
    amount = Amount(len(found.stores), found.size)
    if not apply or not found.stores:
        return amount
    dropped, in_use = expired.drop(opened_catalog(settings), found, before)
    kept += in_use
    return Amount(dropped, amount.size)
