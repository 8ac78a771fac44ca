"""The code location of `tests.proof.test_code_plan_live`."""
