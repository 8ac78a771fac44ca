"""What happens in a run's process: the IO manager, the load, and what materializations and checks say."""
