"""The defects of the long proof still fit the code: one that is seeded nowhere would be found out only there."""

import pytest

from tests.proof.test_seeded_defects import DEFECTS, Defect, place_of


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.where)
def test_the_line_that_a_defect_replaces_is_there(defect: Defect) -> None:
    place_of(defect)
