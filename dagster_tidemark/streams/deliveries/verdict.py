"""The verdict on a delivery: already loaded, loaded now, refused, incomplete, or still waiting for files.

The table's rows are the record of loaded deliveries. The message that was sent last counts, in whatever order messages
are handled. A fault of a service is raised, and is never a verdict. Does not belong here: the handling of a message
(`worker`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.errors import Transient
from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse.loading.all_or_none import Refusal, load_all_or_none
from dagster_tidemark.lakehouse.loading.spec import Landing, Load
from dagster_tidemark.lakehouse.session import naming_the_server, opened_session
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.listing import ObjectChanged, ObjectUnavailable
from dagster_tidemark.sources.manifests import DeliveryManifest
from dagster_tidemark.streams.deliveries import answer as answers
from dagster_tidemark.streams.deliveries.answer import Answer
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.deliveries.files import Checked, Checker
from dagster_tidemark.streams.deliveries.table import DeliveryTable, LoadedDelivery


class OvertakenDelivery(Transient):
    """Another load has replaced the delivery right after it was loaded. A retry reads the new state."""


@dataclass
class Verdicts:
    """Judges and loads deliveries, in one run.

    Args:
        declared: The declaration of the deliveries.
        settings: The settings of the deployment.
        lake: The catalog, through pyiceberg.
        landing: The bucket of the files.
    """

    declared: Deliveries
    settings: Settings
    lake: Catalog
    landing: Landing

    def __post_init__(self) -> None:
        self._table = DeliveryTable(self.lake, self.declared.table)
        self._checker = Checker(self.landing, self.declared.like)

    def on(self, manifest: DeliveryManifest, posted_at: datetime, *, is_last: bool) -> Answer | None:
        """Return the answer to a manifest; None while files may still arrive.

        Args:
            posted_at: The time when the manifest's message was sent.
            is_last: True if the time to wait for files is over.
        """
        standing, since = self._table.look(manifest.delivery_id), self._table.head
        is_loaded = standing is not None and standing.manifest == manifest.digest
        if standing is not None and not is_loaded and standing.is_later_than(posted_at, manifest.digest):
            return answers.superseded(manifest, standing, posted_at)
        checked = self._checker.look(manifest)
        if standing is not None and is_loaded:
            return answers.loaded(manifest, standing, checked.unlisted)
        if checked.is_wrong or is_last or not checked.is_incomplete:
            checked = self._checker.verify(checked)
        if not checked.is_wrong and not checked.is_incomplete:
            try:
                return self._loaded(_Loading(manifest, checked, posted_at, standing, since))
            except (ObjectChanged, ObjectUnavailable) as error:
                checked = self._checker.with_fault(checked, error)
        if checked.is_wrong or is_last:
            return answers.not_loaded(manifest, checked, posted_at, standing, self.declared.patience)
        return None

    def _loaded(self, of: _Loading) -> Answer:
        """Load the whole delivery or nothing, and return the answer."""
        manifest, checked = of.manifest, of.checked
        with opened_session(self.settings) as spark, naming_the_server(spark):
            refusal = self._load(spark, of)
        reached("stream_committed")
        if refusal is not None:
            return answers.not_loaded(manifest, checked, of.posted_at, of.standing, refusal=refusal)
        now = self._table.look(manifest.delivery_id)
        if now is None or now.manifest != manifest.digest:
            raise OvertakenDelivery(
                f"delivery {manifest.delivery_id}: another message of this delivery was loaded in the meantime"
            )
        return answers.loaded(manifest, now, checked.unlisted)

    def _load(self, spark: SparkSession, of: _Loading) -> Refusal | None:
        delivery_id, declared = of.manifest.delivery_id, self.declared
        load = Load(
            declared.feed_of(delivery_id), declared.table, of.with_delivery(declared.transform), declared.code_version
        )
        files = [each.file for each in of.checked.files if each.file]
        run_id = uuid.uuid4().hex
        return load_all_or_none(spark, self.landing, load, delivery_id, files, since=of.since, run_id=run_id)


@dataclass(frozen=True)
class _Loading:
    """A delivery that matches its manifest, with the state of the delivery in the table as of the snapshot `since`."""

    manifest: DeliveryManifest
    checked: Checked
    posted_at: datetime
    standing: LoadedDelivery | None
    since: int | None

    def with_delivery(self, transform: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], DataFrame]:
        """Return the transform, extended by the columns that describe a row's delivery."""
        said = {
            "manifest": F.lit(self.manifest.digest),
            "posted_at": F.lit(self.posted_at),
            "replaces": F.lit(self.standing.manifest if self.standing else None).cast("string"),
        }
        return lambda rows: transform(rows).withColumns(said)
