"""The pure layer stays pure."""

import subprocess
import sys

MODULES = ("orders", "sales", "order_stats", "margin", "demand", "readings", "hot_spots")


def test_importing_transforms_does_not_load_dagster() -> None:
    imports = "; ".join(f"import pipelines.transforms.{name}" for name in MODULES)
    program = f"import sys; {imports}; assert 'pyspark' in sys.modules; assert 'dagster' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_alert_rule_loads_neither_dagster_nor_spark() -> None:
    program = "import sys, pipelines.transforms.cold_chain; assert not {'dagster', 'pyspark'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
