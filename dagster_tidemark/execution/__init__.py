"""Work in a run's process: the IO manager, the load, the metadata of materializations, and check results."""
