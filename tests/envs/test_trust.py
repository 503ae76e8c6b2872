"""What a run of somebody else would import or contact is told by its settings."""

import pytest

from envs.trust import foreign


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"env_name": "babyai-goto", "engine": "vllm:2", "memory": "window"}, []),
        ({"env_name": "textarena:TwentyQuestions-v0"}, []),
        ({"env_name": "openenv:evil:Env"}, ["env_name"]),
        ({"env_name": "openenv:http://evil.example"}, ["env_name"]),
        ({"env_name": "evil:Env-v0", "engine": "evil:Engine"}, ["env_name", "engine"]),
        ({"upstream": "evil.example:80"}, ["upstream"]),
    ],
)
def test_own_modules_and_addresses_are_foreign(settings, found):
    assert foreign(settings) == {name: settings[name] for name in found}
