"""Commit of data files that Spark's tasks have written (`data_file_tasks`) to an Iceberg table.

The commit replaces partitions. It fails if another writer has changed one of the partitions since the load's starting
snapshot. Belongs here: the choice of tables, and the commit. Does not belong here: the choice of rows.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import append, metadata_reads, write
from dagster_tidemark.lakehouse.commits import CommitConflict, until_committed
from dagster_tidemark.lakehouse.data_file_tasks import Report, file_system
from dagster_tidemark.lakehouse.iceberg_schema import spark_type
from dagster_tidemark.lakehouse.parsing.sources import BucketAddress
from dagster_tidemark.lakehouse.session import settings_of
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import LOCAL_KEY, Settings

_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
_OF_OTHERS = ("write.metadata.", "write.merge.", "write.update.", "write.delete.")
"""Prefixes of the table properties that do not affect new data files."""

_OF_S3 = {"client.region", *(f"s3.{x}" for x in ("endpoint", "region", "path-style-access"))}
_OF_S3 |= {"s3.access-key-id", "s3.secret-access-key"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataFileTarget:
    """Table whose data files tasks can write.

    Args:
        found: The table, loaded by pyiceberg.
        snapshot_id: The starting snapshot of the load.
        partitions: Values of the partition columns, one mapping per partition to replace.
        store: The bucket of the warehouse; None for a folder.
    """

    table: Table
    found: IcebergTable
    snapshot_id: int | None
    partitions: Sequence[Mapping[str, Any]]
    store: BucketAddress | None

    @property
    def schema(self) -> pa.Schema:
        """Columns of a data file, with Iceberg's field ids."""
        fields = {column.name: column for column in schema_to_pyarrow(self.found.schema())}
        return pa.schema([fields[name].with_type(append.small_type(fields[name].type)) for name in self.table.columns])

    @property
    def folders(self) -> list[str]:
        """The folder of each partition, without the bucket."""
        where = self.found.location_provider()
        paths = (where.new_data_location("x", key).rpartition("/")[0] for key in self._keys())
        return [_without_bucket(path) if self.store else _of_file_system(path) for path in paths]

    @property
    def options(self) -> dict[str, Any]:
        """Options of pyarrow's `ParquetWriter`."""
        properties = self.found.properties
        level = properties.get(_LEVEL)
        return {
            "compression": _CODECS[properties.get(_CODEC, "zstd")],
            "compression_level": None if level is None else int(level),
        }

    def replace(self, reports: Sequence[Report], footers: Sequence[bytes], *, run_id: str) -> None:
        """Replace the rows of the partitions with these files, in one commit.

        Raises:
            CommitConflict: another writer has changed one of the partitions since `snapshot_id`. Nothing is committed.
        """
        if outdated := until_committed(lambda: self._replaced(reports, footers, run_id), self.table.name):
            raise CommitConflict(f"{self.table.name}: {outdated}")

    def _replaced(self, reports: Sequence[Report], footers: Sequence[bytes], run_id: str) -> str:
        """Commit the files. Return the reason why the rows must be computed again; empty if they are committed."""
        found = self.found.catalog.load_table(self.found.name())
        if found.spec() != self.found.spec():
            return "another writer has changed its partitioning"
        head = found.current_snapshot()
        head_id = head.snapshot_id if head else None
        there = self._files(found, head_id)
        if head_id != self.snapshot_id:
            if self._are_committed(found, reports, run_id):
                return ""
            if self.snapshot_id is not None and found.snapshot_by_id(self.snapshot_id) is None:
                return f"the snapshot {self.snapshot_id} has expired"
            if _paths(there) != _paths(self._files(found, self.snapshot_id)):
                return "another run has committed to the same partitions"
        new = list(self._data_files(found, reports, footers))

        def change(transaction: Transaction) -> None:
            with transaction.update_snapshot(snapshot_properties={write.RUN_ID: run_id}).overwrite() as update:
                for task in there:
                    update.delete_data_file(task.file)
                for file in new:
                    update.append_data_file(file)

        append.commit_on_head(found, change)
        return ""

    def _are_committed(self, found: IcebergTable, reports: Sequence[Report], run_id: str) -> bool:
        """Return True if a snapshot of this run has the files.

        A catalog may report a conflict although it has committed. For example, the client of AWS Glue repeats a request
        without an answer, and Glue then refuses the second request because of the first one.
        """
        own = {f"{self._before_path()}{report.path}" for report in reports}
        of_run = (
            snapshot.snapshot_id
            for snapshot in found.metadata.snapshots
            if metadata_reads.properties_of(snapshot).get(write.RUN_ID) == run_id
        )
        return any(own & _paths(self._files(found, snapshot_id)) for snapshot_id in of_run)

    def discard(self, prefix: str) -> None:
        """Delete files of an abandoned load, which are not in the table: all files whose names begin with a prefix."""
        system = file_system(self.store)
        bucket = f"{self.store.name}/" if self.store else ""
        for folder in self.folders:
            try:
                for file in system.get_file_info(fs.FileSelector(bucket + folder, allow_not_found=True)):
                    if file.base_name.startswith(prefix):
                        system.delete_file(file.path)
            except OSError as error:
                logger.warning("files of an abandoned load could not be deleted from %s: %s", folder, error)

    def has_deletes(self) -> bool:
        """Return True if the partitions have delete files, or data files of an earlier partitioning."""
        files = self._files(self.found, self.snapshot_id)
        return any(task.delete_files or task.file.spec_id != self.found.spec().spec_id for task in files)

    def _keys(self) -> Iterator[PartitionKey | None]:
        spec, schema = self.found.spec(), self.found.schema()
        for values in self.partitions:
            fields = [PartitionFieldValue(f, values[schema.find_column_name(f.source_id) or ""]) for f in spec.fields]
            yield PartitionKey(fields, spec, schema) if fields else None

    def _files(self, found: IcebergTable, snapshot_id: int | None) -> list[FileScanTask]:
        if snapshot_id is None:
            return []
        if found.snapshot_by_id(snapshot_id) is None:
            raise CommitConflict(f"{self.table.name}: the snapshot {snapshot_id} has expired")
        wanted = {key.partition if key else Record() for key in self._keys()}
        has_few = bool(self.partitions) and len(self.partitions) <= _MOST_CONDITIONS
        where = metadata_reads.any_of(self.partitions) if has_few else AlwaysTrue()
        return [t for t in found.scan(where, snapshot_id=snapshot_id).plan_files() if t.file.partition in wanted]

    def _data_files(
        self, found: IcebergTable, reports: Sequence[Report], footers: Sequence[bytes]
    ) -> Iterator[DataFile]:
        schema, keys = found.schema(), list(self._keys())
        plan, columns = compute_statistics_plan(schema, found.properties), parquet_path_to_id_mapping(schema)
        for report, footer in zip(reports, footers, strict=True):
            key = keys[report.partition]
            statistics = data_file_statistics_from_parquet_metadata(
                pq.read_metadata(io.BytesIO(footer)), dict(plan), columns
            )
            yield DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{self._before_path()}{report.path}",
                file_format=FileFormat.PARQUET,
                partition=key.partition if key else Record(),
                file_size_in_bytes=report.size,
                sort_order_id=None,
                spec_id=found.spec().spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )

    def _before_path(self) -> str:
        location = urlsplit(self.found.location())
        if self.store:
            return f"{location.scheme}://{location.netloc}/"
        return f"{location.scheme}:" if location.scheme else ""


_MOST_CONDITIONS = 200


def target_of(
    spark: SparkSession, table: Table, partitions: Sequence[Mapping[str, Any]], snapshot_id: int | None
) -> DataFileTarget | None:
    """Return the target for data files of some partitions; None if only Spark's own writer can write the table.

    Args:
        partitions: Values of the partition columns, one mapping per partition.
    """
    found = None if table.branch else metadata_reads.loaded(spark, table)
    settings = settings_of(spark)
    if found is None or settings is None:
        return None
    reason = _hindrance(found, table)
    store = _store_of(found, settings)
    if not reason and isinstance(store, str):
        reason = store
    target = DataFileTarget(table, found, snapshot_id, partitions, store if isinstance(store, BucketAddress) else None)
    if not reason and target.has_deletes():
        reason = "some partitions have delete files, or files of an earlier partitioning"
    if reason:
        logger.info("%s is written by Spark's writer: %s", table.name, reason)
        return None
    return target


def _hindrance(found: IcebergTable, table: Table) -> str:
    """Return the reason why tasks cannot write data files of a table; empty if they can."""
    schema, spec = found.schema(), found.spec()
    stored = {column.name: spark_type(column.field_type) for column in schema.fields}
    if found.metadata.format_version != 2:
        return f"its format version is {found.metadata.format_version}"
    if any(stored.get(name) != kind.replace(" ", "") for name, kind in table.columns.items()):
        return "its column types differ from the declaration"
    if any(column.required or not column.field_type.is_primitive for column in schema.fields):
        return "it has required or nested columns"
    sources = [schema.find_column_name(part.source_id) for part in spec.fields]
    if any(not isinstance(part.transform, IdentityTransform) for part in spec.fields) or sources != list(
        table.partition_columns
    ):
        return "its partitioning differs from the declaration"
    if not found.sort_order().is_unsorted:
        return "it has a sort order"
    properties = found.properties
    for name, value in properties.items():
        is_writers = name.startswith("write.") and not name.startswith(_OF_OTHERS)
        if is_writers and name != _LEVEL and not (name == _CODEC and value in _CODECS):
            return f"its property {name} is set"
    if any(name.startswith("encryption.") for name in properties):
        return "it is encrypted"
    return ""


def _store_of(found: IcebergTable, settings: Settings) -> BucketAddress | str | None:
    """Return the bucket of a table, None for a local folder, or the reason (text) why tasks cannot write there."""
    location = urlsplit(found.location())
    if location.scheme in ("", "file"):
        return None
    if location.scheme not in ("s3", "s3a"):
        return f"its location has the scheme {location.scheme}"
    options = {name: value for name, value in found.io.properties.items() if name.startswith(("s3.", "client."))}
    key = LOCAL_KEY if settings.own_cloud else None
    if not options.keys() <= _OF_S3 or options.get("s3.access-key-id") != key:
        return "the catalog issues credentials or options for its store"
    return BucketAddress(location.netloc, settings.aws_region, settings.aws_endpoint_url, key)


def _paths(files: Collection[FileScanTask]) -> set[str]:
    return {path for task in files for path in (task.file.file_path, *(d.file_path for d in task.delete_files))}


def _without_bucket(path: str) -> str:
    return urlsplit(path).path.lstrip("/")


def _of_file_system(path: str) -> str:
    return urlsplit(path).path if path.startswith("file:") else path
