"""Every key of ours on Dagster's events, runs, assets and stored values, and Dagster's own that are read beside them.

A key is written and read in different rooms and in different releases: renaming one is a migration.
"""

# On assets, set by users.
PACE = "tidemark/pace"
"""`asap`: run as soon as anything is pending."""
REQUIRES = "tidemark/requires"
"""`every_input_changed`: run only when each input has changed."""

# On the metadata of asset specs.
READS = "tidemark/reads"
"""What an asset's dependencies declare, by input."""

# On observations and materializations.
DATA_VERSION = "dagster/data_version"
CODE_VERSION = "dagster/code_version"
LISTED_AT = "tidemark/listed_at"
"""When the bucket was listed, in epoch seconds."""
ARRIVED_AT = "tidemark/arrived_at"
"""When the newest data arrived that made the change, in epoch seconds."""
OUTCOME = "tidemark/removal"
"""What the disappearance of a partition's files means: one of `sources.removals`."""
CONTENT = "tidemark/content"
"""The content version of a partition: equal for equal rows."""

# On runs.
PRIORITY = "dagster/priority"
"""A number: what is higher leaves the queue first."""
REBUILD = "tidemark/rebuild"
"""`true`: asked for because of other code."""
REQUESTED_BY = "tidemark/requested-by"
"""Which sensor of ours asked for the run."""
TABLES = "tidemark/tables"
"""What the run builds, for the list of runs: a few of its assets."""
PUBLISHED = "tidemark/published"
"""The id of the preview whose rows the run reports: it computed none."""
STREAM = "tidemark/stream"
"""The stream that a long-lived run works at."""
WORKER = "tidemark/worker"
"""Which of a stream's runs it is, from 0."""
PROCESS = ".dagster/tidemark/process"  # with this beginning the list of runs does not show it
"""The id of the run's process and when that began, in Unix seconds, as `4711@1790000000.25`."""

# In the event log and the key-value store of an instance.
JOURNAL = "tidemark/journal"
"""The asset whose observations are the planner's own notes (`event_log.journal`), and their metadata."""
HISTORY = "tidemark/history/"
"""Prefix of the checkpoint of a code location."""
ASKED_IN_VAIN = "tidemark/asked_in_vain/"
"""Prefix of what a code server asked for in vain."""
DEPLOYED = "tidemark/deployed/"
"""Prefix of what the assets of a code location declare, as its sensors see them."""
CODE_OF_STREAMS = "tidemark/code_of_streams/"
"""Prefix of the code that the sensor of a code location's streams has loaded: another one ends the runs of the last."""
SINCE = "tidemark/since"
"""Since when an instance watches each asset's contract."""
