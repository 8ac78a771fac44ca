"""OpenLineage's events from what a run did with an asset.

Belongs here: names of jobs and datasets, and facets. Does not belong here: sending (`event_sender`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, UUID, uuid5

from dagster_tidemark.lineage.asset_runs import AssetRun, AssetVersion

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

PRODUCER = "https://pypi.org/project/dagster-tidemark"


@dataclass(frozen=True)
class LineageNames:
    """Names of jobs and datasets.

    Args:
        jobs: Namespace of the jobs.
        catalog: Namespace of tables: the catalog's address without login.
        tables: Names of the tables, such as `core.orders`.
        files: Namespace and name of the files of each feed, by source asset.
    """

    jobs: str
    catalog: str
    tables: frozenset[str] = frozenset()
    files: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def dataset(self, asset: str) -> tuple[str, str]:
        """Return the namespace and the name of an asset's dataset."""
        if asset in self.files:
            return self.files[asset]
        name = asset.replace("/", ".")
        return (self.catalog, name) if name in self.tables else (self.jobs, asset)


def event_of(found: AssetRun, names: LineageNames) -> RunEvent:
    """Return the event of an asset in a run. All events of the pair have the same run id."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        RunFacet,
        dataset_version_dataset,
        error_message_run,
        parent_run,
    )

    def _facets(version: AssetVersion) -> dict[str, DatasetFacet]:
        facet = dataset_version_dataset.DatasetVersionDatasetFacet(version.snapshot, producer=PRODUCER)
        return {"version": facet} if version.snapshot else {}

    facets: dict[str, RunFacet] = {
        "parent": parent_run.ParentRunFacet(
            parent_run.Run(_parent_uuid(found.run_id)), parent_run.Job(names.jobs, found.job), producer=PRODUCER
        )
    }
    if found.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(found.error, "python", producer=PRODUCER)
    return RunEvent(
        eventType=RunState(found.state.value),
        eventTime=datetime.fromtimestamp(found.at, UTC).isoformat(),
        run=Run(run_uuid(found.run_id, found.asset), facets),
        job=Job(names.jobs, found.asset),
        inputs=[InputDataset(*names.dataset(each.asset), facets=_facets(each)) for each in found.inputs],
        outputs=[OutputDataset(*names.dataset(found.asset), facets=_facets(found.output))],
        producer=PRODUCER,
    )


def run_uuid(run_id: str, asset: str) -> str:
    """Return OpenLineage's id of an asset in a run. A repeated event has the same id."""
    return str(uuid5(NAMESPACE_URL, f"{run_id}/{asset}"))


def _parent_uuid(run_id: str) -> str:
    """Return Dagster's run id as a UUID. An id that is none, as of a run that was created by hand, becomes one."""
    try:
        return str(UUID(run_id))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, run_id))
