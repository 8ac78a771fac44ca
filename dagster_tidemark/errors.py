"""The two bases of all errors of the library, and their exit codes.

    TidemarkError
    ├── Transient          exits with 1   an external cause: wait, or remove it, and the same call works
    │   ├── BucketUnavailable, ObjectUnavailable, ObjectChanged, QueueUnavailable, DeleteRefused
    │   ├── SparkUnreachable, SparkLost, SparkFailed, NotScanned
    │   ├── KafkaUnavailable, TopicUnknown, RangeGone
    │   ├── CommitConflict, WriteConflict, ChangedMeanwhile, PreviewInUse
    │   └── CannotStart, CannotReconcile, JarsMissing, BrokerFailed, ServiceFailed, SupervisorDied, AlreadyRunning
    └── Terminal           exits with 2   a setting, an option, a declaration or a file must change
        ├── SettingsError, NoProject, NoSuchAsset, NoSampleFeed, CannotHandle, SchemaDiffers, NoSuchTable
        ├── KafkaRefused, KafkaMissing, NoKafkaSource, PositionUnreadable
        ├── NotPython, LockFileUnreadable, ProjectRefused, DagsterUnsupported
        ├── NotDeployable  exits with 8   `plan` refuses the deploy
        ├── Refused, NoRun, OutsideLayout, NotOurs, Unusable
        └── NothingRuns    exits with 3   start the platform, or name an instance

A transient error is never a verdict on data. Each error is declared where it is raised, and its message names the thing
and the remedy.
"""

from typing import ClassVar


class TidemarkError(Exception):
    """Base of all errors of the library."""

    exit_code: ClassVar[int] = 1


class Transient(TidemarkError):
    """An external cause, such as an unreachable service. A retry helps after it is gone."""


class Terminal(TidemarkError):
    """An error that a retry does not resolve: a setting, an option, a declaration or a file must change."""

    exit_code = 2
