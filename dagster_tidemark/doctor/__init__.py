"""Checks of a whole arrangement from the place where they are called: `tidemark doctor`.

One module for each part: `arrangement` (settings, packages, Dagster's instance), `catalog`, `spark`, `bucket`,
`queues`, `topics`. Each check really uses its part, and leaves nothing behind. Does not belong here: the state of
contracts (`cli.status`), and printing (`cli.doctor`).
"""
