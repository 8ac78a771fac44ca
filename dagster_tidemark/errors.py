"""The two bases of all errors of the library, and their exit codes.

    TidemarkError          exits with 1
    ├── Transient          exits with 1   an external cause: wait, or remove it, and the same call works
    │   ├── sources        BucketUnavailable, ObjectUnavailable, ObjectChanged, QueueUnavailable, DeleteRefused,
    │   │                  KafkaUnavailable, TopicUnknown
    │   ├── lakehouse      SparkUnreachable, SparkLost, SparkFailed, NotScanned, CatalogUnavailable, CatalogUnreadable,
    │   │                  CommitConflict, SnapshotExpired, SourceAdvanced, RangeGone, NotRead
    │   ├── streams        NotAnsweredYet, OvertakenDelivery
    │   ├── incidents      BookBusy, ChannelUnavailable
    │   ├── maintenance    MaintenanceStopped
    │   ├── retention      PruneRefused
    │   ├── preview        PreviewInUse
    │   ├── engine         OverridesBusy
    │   ├── event_log      ReplacedCode
    │   ├── cli            StorageUnreachable, NoWebserver
    │   └── local          JarsMissing, ServiceFailed, SupervisorDied, AlreadyRunning
    ├── Terminal           exits with 2   a setting, an option, a declaration or a file must change
    │   ├── root modules   SettingsError, VariableRefused, NoProject, NoneFound, LocationBroken, ComponentHoldsMore,
    │   │                  DeclarationRefused, PartitionsDiffer, DagsterUnsupported, ConditionRefused
    │   ├── sources        KafkaRefused, KafkaMissing, PositionUnreadable, OutsideLayout, NotOurs, NoManifest
    │   ├── lakehouse      SchemaDiffers, ColumnsDiffer, Unusable, ReaderMissing, NoKafkaSource, NoSuchModel,
    │   │                  ModelDamaged, OrphansRefused, NotRepaired
    │   ├── asset_graph    Refused
    │   ├── lineage        LineageMissing
    │   ├── engine         NoRun, NoSavedState, OverridesUnreadable
    │   ├── execution      NoSuchTable, NotADataFrame, NoAlerts
    │   ├── streams        StreamRefused, NoInlet, RuleFails
    │   ├── asset_events   EventsRefused
    │   ├── incidents      ChannelRefused, ExpectationRefused, MessageRefused
    │   ├── retention      TooShort
    │   ├── code_versions  NotPython, LockFileUnreadable
    │   ├── preview        NoPreview, PreviewFailed, NotToPublish, NoSuchPartitions, NotOnABranch
    │   ├── scaffold       NoModule, NoSample, NoInput
    │   ├── cli            NoSuchAsset, NotSelectable, CannotHandle, OtherCode
    │   │                  NotDeployable exits with 8: `plan` refuses the deploy
    │   └── local          NothingRuns exits with 3: start the platform, or name an instance
    └── streams            NotOneEach

A transient error is never a verdict on data. Each message names the thing and the remedy. An error that callers or
tests tell apart has its own class, which is declared where it is raised. Others are raised as the base itself.
"""

from typing import Any, ClassVar


class TidemarkError(Exception):
    """Base of all errors of the library."""

    exit_code: ClassVar[int] = 1


class Transient(TidemarkError):
    """An external cause, such as an unreachable service. A retry helps after it is gone."""


class Terminal(TidemarkError):
    """An error that a retry does not resolve: a setting, an option, a declaration or a file must change."""

    exit_code = 2


def shown(found: Any) -> str:
    """Return the type of a value for an error, and its name if it has one."""
    name = getattr(found, "name", None) or getattr(found, "__name__", None)
    return f"{type(found).__name__} {name}" if isinstance(name, str) else type(found).__name__
