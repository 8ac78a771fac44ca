"""The planner in a code server: the engine, the automation condition, and run requests."""
