"""The engine that draws every rollout, which speed is measured against, trains to the same pass rates as counts do."""

import numpy as np
from click.testing import CliRunner

from simulators.skills.population import draw_population
from simulators.skills.training import train
from studies import simulation_speed
from studies.simulation_speed import OPTIONS, one_by_one, settings_with


def test_both_engines_train_to_the_same_pass_rate() -> None:
    settings = settings_with(
        {"recipe.steps": "60", "recipe.rollouts": "4", "recipe.prompts": "64", "prompts.train": "64"}
    )
    population = draw_population(settings, 1, np.random.default_rng(3))
    naive = [one_by_one(population, settings, np.random.default_rng([1, k])) for k in range(24)]
    many = train(population.repeat(24), settings, np.random.default_rng(2), at=[60])
    counts = many.train.solved[-1]
    error = np.sqrt(np.var(naive, ddof=1) / 24 + np.var(counts, ddof=1) / 24)
    assert abs(np.mean(naive) - counts.mean()) < 4 * error
    assert error < 0.005
    # Not only on average: the luck of rollouts moves both alike.
    assert 0.5 < np.std(naive) / np.std(counts) < 2


def test_every_option_is_a_setting_of_its_own() -> None:
    base = settings_with({})
    changed = [settings_with(dict(text.split("=") for text in option.split())) for option in OPTIONS]
    assert all(settings != base for settings in changed)
    assert len(set(changed)) == len(OPTIONS)


def test_the_script_prints_its_tables(monkeypatch) -> None:
    monkeypatch.setattr(simulation_speed, "BASE", simulation_speed.BASE | {"recipe.steps": "2"})
    monkeypatch.setattr(simulation_speed, "OPTIONS", OPTIONS[:2])
    answer = CliRunner().invoke(simulation_speed.main, ["--worlds", "1", "--repeats", "1"])
    assert answer.exit_code == 0, answer.output
    for words in ("all off", "worlds together", "every rollout", "peak memory"):
        assert words in answer.output
