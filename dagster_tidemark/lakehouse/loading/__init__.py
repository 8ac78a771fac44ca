"""From the files of a feed to its table: query the state, decide, read, validate, quarantine, commit."""
