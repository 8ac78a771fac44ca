"""Short days of the grocer, and a few mornings; the long ones are in tests/proof."""

from tests.automation.grocer_days import busy, judge, whole_graph
from tests.automation.mornings import PATH, mornings


def test_data_every_five_minutes_is_incorporated_in_time_by_few_runs() -> None:
    simulation = whole_graph(seed=1)
    busy(simulation, hours=3, everything=True, seed=1)
    simulation.run(hours=4)
    judged = judge(simulation)
    assert judged.looks > 2000 and judged.lacking > 100
    assert judged.within >= 0.995, judged.figures()
    for asset, (runs, most) in judged.runs_per_window.items():
        assert runs <= most, f"{asset}: {runs:.2f} runs a window, {most:.2f} allowed"


def test_the_report_is_there_by_nine_though_something_on_its_path_fails_first() -> None:
    played = mornings(len(PATH), every_hours=6)
    assert [(morning.failed, morning.in_time) for morning in played] == [(True, True)] * len(PATH)
    assert all(morning.first_start >= 0 for morning in played), played
