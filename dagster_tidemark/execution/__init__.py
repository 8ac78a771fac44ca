"""Code that runs in a run's process: the IO manager, loads, metadata of materializations, and check results."""
