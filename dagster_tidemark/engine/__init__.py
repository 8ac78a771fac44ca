"""The planner at work in a code server: the engine, the automation condition, and the runs it asks for."""
