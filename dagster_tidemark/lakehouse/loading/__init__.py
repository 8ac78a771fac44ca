"""From the files of a feed to its table: look, decide, read, validate, quarantine, commit."""
