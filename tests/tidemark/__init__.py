"""The machinery's tests: on a toy code location, so that they hold whatever becomes of the example domain."""
