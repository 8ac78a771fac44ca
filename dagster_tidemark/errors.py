"""The two bases of every error of ours, and what each is worth as an exit code.

    TidemarkError
    ├── Transient          exits with 1   the world is in the way: wait, or mend it, and the same call works
    │   ├── BucketUnavailable, ObjectUnavailable, ObjectChanged, QueueUnavailable, DeleteRefused
    │   ├── SparkUnreachable, SparkLost, SparkFailed, NotScanned
    │   ├── KafkaUnavailable, TopicUnknown, RangeGone
    │   ├── CommitConflict, WriteConflict, ChangedMeanwhile, PreviewInUse
    │   └── CannotStart, CannotReconcile, JarsMissing, BrokerFailed, ServiceFailed, SupervisorDied, AlreadyRunning
    └── Terminal           exits with 2   somebody has to change a setting, an option, a declaration or a file
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
    """Any error of ours."""

    exit_code: ClassVar[int] = 1


class Transient(TidemarkError):
    """The world is in the way; a retry helps once it is not."""


class Terminal(TidemarkError):
    """A retry does not help until somebody has changed something."""

    exit_code = 2
