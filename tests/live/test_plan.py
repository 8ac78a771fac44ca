"""`tidemark plan` beside a platform whose contracts run at a part of their time, which the shell does not know."""

from tests.live.conftest import Loaded


def test_plan_of_the_deployed_code_lists_nothing_to_do(loaded: Loaded) -> None:
    platform = loaded.platform
    platform.quiet()
    shell = {name: value for name, value in platform.asked.items() if name != "TIDEMARK_CONTRACT_SCALE"}
    said = platform.pipelines("plan", shell=shell).stdout
    assert said.strip() == "no partition would run because of this code"
