"""What can be wrong on purpose in a cell, so that the matrix is seen to notice."""

from enum import StrEnum


class Defect(StrEnum):
    """One for each class of boundary."""

    DELETE_BEFORE_OBSERVING = "delete before observing"
    TABLE_BEFORE_QUARANTINE = "table before quarantine"
    APPEND_INSTEAD_OF_MERGE = "append instead of MERGE"
