"""Is it right: the checks beside the assets."""
