"""The library's keys on Dagster's events, runs, assets and stored values, and the keys of Dagster that it reads.

A key is written and read by different modules and releases, so renaming one needs a migration.
"""

PREFIX = "tidemark_"
"""Prefix of the library's sensors, schedules and resources in a code location that has others."""
IO_MANAGER = f"{PREFIX}io_manager"
"""Key of the IO manager that stores the library's tables."""

# On assets, set by users.
PACE = "tidemark/pace"
"""`asap`: run as soon as anything is pending."""
REQUIRES = "tidemark/requires"
"""`every_input_changed`: run only when each input has changed."""

# On the metadata of asset specs.
READS = "tidemark/reads"
"""Declarations of an asset's dependencies, by input."""

# On observations and materializations.
DATA_VERSION = "dagster/data_version"
CODE_VERSION = "dagster/code_version"
LISTED_AT = "tidemark/listed_at"
"""Time of the bucket's listing, in epoch seconds."""
ARRIVED_AT = "tidemark/arrived_at"
"""Time when the newest data of the change arrived, in epoch seconds."""
EVENT_ID = "tidemark/event_id"
"""Id of the event that another deployment has sent."""
OUTCOME = "tidemark/removal"
"""Effect of the removal of a partition's files: one of `sources.removals`."""
CONTENT = "tidemark/content"
"""The content version of a partition: equal for equal rows."""

# On runs.
PRIORITY = "dagster/priority"
"""A number. Runs with a higher one leave the queue first."""
REBUILD = "tidemark/rebuild"
"""`true`: everything is built again, and loads read their files again. A person may set it, too."""
REQUESTED_BY = "tidemark/requested-by"
"""The library's sensor that requested the run."""
CHECK = "tidemark/check"
"""The blocking check that the run evaluates, because no other run has evaluated it."""
TABLES = "tidemark/tables"
"""A few of the run's assets, for the list of runs."""
PUBLISHED = "tidemark/published"
"""The id of the preview whose published rows the run reports. The run itself computed none."""
STREAM = "tidemark/stream"
"""The stream that a long-lived run reads."""
WORKER = "tidemark/worker"
"""Number of the run among its stream's runs, from 0."""
PROCESS = ".dagster/tidemark/process"  # this prefix hides it in the list of runs
"""The process of the run, as `event_log.run_process` identifies it."""
WORKED = ".dagster/tidemark/worked"
"""`true`: the shift has committed something, or has worked for half a minute."""

# In the event log and the key-value store of an instance.
JOURNAL = "tidemark/journal"
"""The asset whose observations are the planner's own notes (`event_log.journal`), and their metadata."""
HISTORY = "tidemark/history/"
"""Prefix of the checkpoint of a code location."""
HISTORY_PARTS = "tidemark/history_parts/"
"""Prefix of the parts of checkpoints: the known facts of each asset's partitions."""
ASKED_IN_VAIN = "tidemark/asked_in_vain/"
"""Prefix of a code server's requests for which no run can be created."""
DEPLOYED = "tidemark/deployed/"
"""Prefix of the declarations of a code location's assets, as its sensors see them."""
DEPLOYED_CODE = "tidemark/deployed_code/"
"""Prefix of the text of a code location's deployed code."""
PARTITIONS = "tidemark/partitions/"
"""Prefix of the start times of the present partitions definitions of a code location's assets."""
CODE_OF_STREAMS = "tidemark/code_of_streams/"
"""Prefix of the hash of the code that the stream sensor of a code location has loaded. New code ends older runs."""
SHIFT = "tidemark/shift/"
"""Prefix of the last heartbeat of each worker of a stream."""
LOOKED = "tidemark/looked/"
"""Prefix of the times when a code location's sensors last completed a check of external systems."""
CODE_SERVERS = "tidemark/code_servers"
"""Key of the code servers by the path of their socket."""
OVERVIEW = "tidemark/overview/"
"""Prefix of the state of a code location's contracts at the last tick of the sensor `contracts`."""
SINCE = "tidemark/since"
"""Key of the times when an instance began to watch each asset's contract."""

INCIDENTS = "tidemark/incidents/"
"""Prefix of the open incidents of a code location, with their unsent messages."""
INCIDENTS_CLOSED = "tidemark/incidents_closed/"
"""Prefix of the closed incidents of a code location."""

OVERRIDES = "tidemark/overrides"
"""Key of the pauses, skips and rebuilds that people have asked for on an instance."""

BLOCKING_CHECKS = "tidemark/blocking_checks"
"""Asset metadata: names of the asset's blocking checks that other code locations declare."""
