from .asset_events.declared import AssetEvents as AssetEvents
from .asset_events.declared import PublishTo as PublishTo
from .asset_events.declared import listener as listener
from .asset_events.event import AssetEvent as AssetEvent
from .asset_events.listen import event_extras as event_extras
from .code_versions.assets import versioned_by_code as versioned_by_code
from .components import FeedComponent as FeedComponent
from .components import TableComponent as TableComponent
from .conditions_to_combine import between as between
from .conditions_to_combine import check_passed as check_passed
from .conditions_to_combine import every as every
from .conditions_to_combine import updated as updated
from .definitions import assets_in as assets_in
from .definitions import build_definitions as build_definitions
from .definitions import extend as extend
from .derived_table import table_asset as table_asset
from .discovery import declared as declared
from .engine.condition import derived as derived
from .engine.condition import with_automation as with_automation
from .environment import from_env as from_env
from .execution.filled_check import counting_missing as counting_missing
from .execution.filled_check import filled_check as filled_check
from .execution.filled_check import filled_result as filled_result
from .execution.lakehouse_resource import LakehouseResource as LakehouseResource
from .execution.load_check import landed_checks as landed_checks
from .feed_factory import feed_assets as feed_assets
from .incidents.channels.email import Email as Email
from .incidents.channels.log import ContractLog as ContractLog
from .incidents.channels.pagerduty import PagerDuty as PagerDuty
from .incidents.channels.queue import ContractQueue as ContractQueue
from .incidents.channels.slack import Slack as Slack
from .incidents.channels.webhook import Webhook as Webhook
from .incidents.expected import ExpectedArrival as ExpectedArrival
from .incidents.routing import QuietHours as QuietHours
from .lakehouse.partitioning import ByDimensions as ByDimensions
from .lakehouse.partitioning import ByKey as ByKey
from .lakehouse.partitioning import ByTime as ByTime
from .lakehouse.read import Snapshot as Snapshot
from .lakehouse.shape import shaped_as as shaped_as
from .lakehouse.shipping import shipped as shipped
from .lakehouse.table import DELIVERY as DELIVERY
from .lakehouse.table import LINEAGE as LINEAGE
from .lakehouse.table import MESSAGE as MESSAGE
from .lakehouse.table import MODEL_VERSIONS as MODEL_VERSIONS
from .lakehouse.table import SOURCE_ROW as SOURCE_ROW
from .lakehouse.table import Retention as Retention
from .lakehouse.table import Table as Table
from .resources.aws import LandingResource as LandingResource
from .resources.aws import QueueResource as QueueResource
from .resources.spark import SparkResource as SparkResource
from .sensors.on_demand import observe_file as observe_file
from .sensors.on_demand import observe_partitions as observe_partitions
from .settings import Settings as Settings
from .settings import load_settings as load_settings
from .sources.feed import Feed as Feed
from .sources.feed import Grain as Grain
from .sources.feed import NewColumns as NewColumns
from .sources.feed import OnRemoval as OnRemoval
from .sources.text_formats import Csv as Csv
from .sources.text_formats import FixedWidth as FixedWidth
from .sources.text_formats import Json as Json

__all__ = [
    "DELIVERY",
    "LINEAGE",
    "MESSAGE",
    "MODEL_VERSIONS",
    "SOURCE_ROW",
    "AssetEvent",
    "AssetEvents",
    "ByDimensions",
    "ByKey",
    "ByTime",
    "ContractLog",
    "ContractQueue",
    "Csv",
    "Email",
    "ExpectedArrival",
    "Feed",
    "FeedComponent",
    "FixedWidth",
    "Grain",
    "Json",
    "LakehouseResource",
    "LandingResource",
    "NewColumns",
    "OnRemoval",
    "PagerDuty",
    "PublishTo",
    "QueueResource",
    "QuietHours",
    "Retention",
    "Settings",
    "Slack",
    "Snapshot",
    "SparkResource",
    "Table",
    "TableComponent",
    "Webhook",
    "assets_in",
    "between",
    "build_definitions",
    "check_passed",
    "counting_missing",
    "declared",
    "derived",
    "event_extras",
    "every",
    "extend",
    "feed_assets",
    "filled_check",
    "filled_result",
    "from_env",
    "landed_checks",
    "listener",
    "load_settings",
    "observe_file",
    "observe_partitions",
    "shaped_as",
    "shipped",
    "table_asset",
    "updated",
    "versioned_by_code",
    "with_automation",
]
