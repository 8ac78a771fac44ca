"""The defects of the long proofs still fit the code: one that is seeded nowhere would be found out only there."""

import pytest

from tests.proof import test_seeded_defects, test_seeded_faults
from tests.proof.test_seeded_defects import Defect, place_of

DEFECTS = [*test_seeded_defects.DEFECTS, *test_seeded_faults.DEFECTS, test_seeded_faults.NOT_GIVEN_AND_GONE]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.where)
def test_source_line_of_each_seeded_defect_exists(defect: Defect) -> None:
    place_of(defect)
