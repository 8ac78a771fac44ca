"""Random graphs of any shape, random days on them, and an oracle that owes nothing to the planner."""
