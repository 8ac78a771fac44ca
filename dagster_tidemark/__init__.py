"""Tidemark: declarative automation over PySpark assets. This is its public face; what is not in it is private.

A code location declares feeds (`Feed`) and tables (`Table`), loads feeds into tables (`LakehouseResource`,
`landed_checks`), derives tables from tables (`shaped_as`), fits models to them (`Learner`), and hands all of them to
`build_definitions`. What is due when follows from the contracts that its assets declare. Files of a format that is not
known are read once it is declared (`FileFormat`) and registered (`register_format`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_tidemark.code_versions.assets import versioned_by_code as versioned_by_code
    from dagster_tidemark.components import FeedComponent as FeedComponent
    from dagster_tidemark.components import TableComponent as TableComponent
    from dagster_tidemark.definitions import assets_in as assets_in
    from dagster_tidemark.definitions import build_definitions as build_definitions
    from dagster_tidemark.definitions import extend as extend
    from dagster_tidemark.derived_table import table_asset as table_asset
    from dagster_tidemark.discovery import declared as declared
    from dagster_tidemark.engine.condition import derived as derived
    from dagster_tidemark.engine.condition import with_automation as with_automation
    from dagster_tidemark.environment import from_env as from_env
    from dagster_tidemark.execution.filled_check import counting_missing as counting_missing
    from dagster_tidemark.execution.filled_check import filled_check as filled_check
    from dagster_tidemark.execution.filled_check import filled_result as filled_result
    from dagster_tidemark.execution.load_asset import LakehouseResource as LakehouseResource
    from dagster_tidemark.execution.load_check import landed_checks as landed_checks
    from dagster_tidemark.feed_factory import feed_assets as feed_assets
    from dagster_tidemark.lakehouse.model_store import Learner as Learner
    from dagster_tidemark.lakehouse.model_store import Model as Model
    from dagster_tidemark.lakehouse.model_store import ModelStore as ModelStore
    from dagster_tidemark.lakehouse.model_store import current_version as current_version
    from dagster_tidemark.lakehouse.partitioning import ByDimensions as ByDimensions
    from dagster_tidemark.lakehouse.partitioning import ByKey as ByKey
    from dagster_tidemark.lakehouse.partitioning import ByTime as ByTime
    from dagster_tidemark.lakehouse.read import Snapshot as Snapshot
    from dagster_tidemark.lakehouse.readers.file_format import FileFormat as FileFormat
    from dagster_tidemark.lakehouse.readers.file_format import Shape as Shape
    from dagster_tidemark.lakehouse.readers.file_format import Written as Written
    from dagster_tidemark.lakehouse.readers.files import Unusable as Unusable
    from dagster_tidemark.lakehouse.readers.formats import register_format as register_format
    from dagster_tidemark.lakehouse.readers.remote_file import RemoteFile as RemoteFile
    from dagster_tidemark.lakehouse.readers.remote_file import arrow_faults as arrow_faults
    from dagster_tidemark.lakehouse.readers.typed_rows import rows_of_arrow as rows_of_arrow
    from dagster_tidemark.lakehouse.readers.typed_rows import rows_of_spark as rows_of_spark
    from dagster_tidemark.lakehouse.shape import shaped_as as shaped_as
    from dagster_tidemark.lakehouse.shipping import shipped as shipped
    from dagster_tidemark.lakehouse.table import DELIVERY as DELIVERY
    from dagster_tidemark.lakehouse.table import LINEAGE as LINEAGE
    from dagster_tidemark.lakehouse.table import MESSAGE as MESSAGE
    from dagster_tidemark.lakehouse.table import MODEL_VERSIONS as MODEL_VERSIONS
    from dagster_tidemark.lakehouse.table import SOURCE_ROW as SOURCE_ROW
    from dagster_tidemark.lakehouse.table import Retention as Retention
    from dagster_tidemark.lakehouse.table import Table as Table
    from dagster_tidemark.resources.aws import LandingResource as LandingResource
    from dagster_tidemark.resources.aws import QueueResource as QueueResource
    from dagster_tidemark.resources.spark import SparkResource as SparkResource
    from dagster_tidemark.sensors.on_demand import observe_file as observe_file
    from dagster_tidemark.sensors.on_demand import observe_partitions as observe_partitions
    from dagster_tidemark.settings import Settings as Settings
    from dagster_tidemark.settings import load_settings as load_settings
    from dagster_tidemark.sources.feed import Feed as Feed
    from dagster_tidemark.sources.feed import Grain as Grain
    from dagster_tidemark.sources.feed import NewColumns as NewColumns
    from dagster_tidemark.sources.feed import OnRemoval as OnRemoval
    from dagster_tidemark.streams.alert_declaration import Alerting as Alerting
    from dagster_tidemark.streams.alert_identity import Episode as Episode
    from dagster_tidemark.streams.answer_declaration import Answering as Answering
    from dagster_tidemark.streams.delivery_declaration import Deliveries as Deliveries
    from dagster_tidemark.streams.stream_declaration import Stream as Stream
    from dagster_tidemark.streams.stream_declaration import Workplace as Workplace

_FOUND_IN = {
    "versioned_by_code": "code_versions.assets",
    "FeedComponent": "components",
    "TableComponent": "components",
    "assets_in": "definitions",
    "build_definitions": "definitions",
    "extend": "definitions",
    "table_asset": "derived_table",
    "declared": "discovery",
    "feed_assets": "feed_factory",
    "derived": "engine.condition",
    "with_automation": "engine.condition",
    "from_env": "environment",
    "counting_missing": "execution.filled_check",
    "filled_check": "execution.filled_check",
    "filled_result": "execution.filled_check",
    "LakehouseResource": "execution.load_asset",
    "landed_checks": "execution.load_check",
    "ByDimensions": "lakehouse.partitioning",
    "ByKey": "lakehouse.partitioning",
    "ByTime": "lakehouse.partitioning",
    "Learner": "lakehouse.model_store",
    "Model": "lakehouse.model_store",
    "ModelStore": "lakehouse.model_store",
    "current_version": "lakehouse.model_store",
    "Snapshot": "lakehouse.read",
    "FileFormat": "lakehouse.readers.file_format",
    "Shape": "lakehouse.readers.file_format",
    "Written": "lakehouse.readers.file_format",
    "Unusable": "lakehouse.readers.files",
    "register_format": "lakehouse.readers.formats",
    "RemoteFile": "lakehouse.readers.remote_file",
    "arrow_faults": "lakehouse.readers.remote_file",
    "rows_of_arrow": "lakehouse.readers.typed_rows",
    "rows_of_spark": "lakehouse.readers.typed_rows",
    "shaped_as": "lakehouse.shape",
    "shipped": "lakehouse.shipping",
    "DELIVERY": "lakehouse.table",
    "LINEAGE": "lakehouse.table",
    "MESSAGE": "lakehouse.table",
    "MODEL_VERSIONS": "lakehouse.table",
    "Retention": "lakehouse.table",
    "SOURCE_ROW": "lakehouse.table",
    "Table": "lakehouse.table",
    "LandingResource": "resources.aws",
    "QueueResource": "resources.aws",
    "SparkResource": "resources.spark",
    "observe_file": "sensors.on_demand",
    "observe_partitions": "sensors.on_demand",
    "Settings": "settings",
    "load_settings": "settings",
    "Feed": "sources.feed",
    "Grain": "sources.feed",
    "NewColumns": "sources.feed",
    "OnRemoval": "sources.feed",
    "Episode": "streams.alert_identity",
    "Alerting": "streams.alert_declaration",
    "Answering": "streams.answer_declaration",
    "Deliveries": "streams.delivery_declaration",
    "Stream": "streams.stream_declaration",
    "Workplace": "streams.stream_declaration",
}
# Written out, because type checkers and ruff read it as text.
__all__ = [
    "DELIVERY",
    "LINEAGE",
    "MESSAGE",
    "MODEL_VERSIONS",
    "SOURCE_ROW",
    "Alerting",
    "Answering",
    "ByDimensions",
    "ByKey",
    "ByTime",
    "Deliveries",
    "Episode",
    "Feed",
    "FeedComponent",
    "FileFormat",
    "Grain",
    "LakehouseResource",
    "LandingResource",
    "Learner",
    "Model",
    "ModelStore",
    "NewColumns",
    "OnRemoval",
    "QueueResource",
    "RemoteFile",
    "Retention",
    "Settings",
    "Shape",
    "Snapshot",
    "SparkResource",
    "Stream",
    "Table",
    "TableComponent",
    "Unusable",
    "Workplace",
    "Written",
    "arrow_faults",
    "assets_in",
    "build_definitions",
    "counting_missing",
    "current_version",
    "declared",
    "derived",
    "extend",
    "feed_assets",
    "filled_check",
    "filled_result",
    "from_env",
    "landed_checks",
    "load_settings",
    "observe_file",
    "observe_partitions",
    "register_format",
    "rows_of_arrow",
    "rows_of_spark",
    "shaped_as",
    "shipped",
    "table_asset",
    "versioned_by_code",
    "with_automation",
]


def __getattr__(name: str) -> Any:
    # Imported when first asked for: a schema needs no Dagster, a transform no boto3, and `tidemark env` neither.
    if name not in _FOUND_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_FOUND_IN[name]}"), name)
    except ImportError as error:
        import_module(f"{__name__}.dagster_range").raise_if_unsupported(error)
        raise


def __dir__() -> list[str]:
    # `dg` looks for components by `dir`. It imports what it finds there, so the other names are not listed.
    return [*globals(), "FeedComponent", "TableComponent"]
