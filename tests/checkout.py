"""The folder of this checkout."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
