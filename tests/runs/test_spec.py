"""Is a wrong runs.toml refused with one line that names the key?"""

import pytest

from forecast.errors import InputError
from forecast.runs.spec import Column, load_spec

GOOD = """
[metric]
column = "val/acc"
kind = "pass_rate"
split = "validation"
scale = [0, 100]
prompts = 1000
samples_per_prompt = 16
[compute]
column = ["timing/gen", "timing/update"]
cumulate = true
times = 0.02222
unit = "gpu_hours"
price_per_unit = 2.5
[[run]]
path = "logs/a.jsonl"
recipe = "cispo"
seed = 0
[[run]]
path = ["b1.jsonl", "b2.jsonl"]
split_by = "condition"
recipe = {column = "condition"}
where = ["split=test"]
attempts = "longest"
floor = 12
"""


def write(tmp_path, text):
    path = tmp_path / "runs.toml"
    path.write_text(text)
    return path


def test_a_full_spec(tmp_path):
    spec = load_spec(write(tmp_path, GOOD))
    assert spec.metric.limits == (0, 100)
    assert spec.compute.column == ["timing/gen", "timing/update"]
    first, second = spec.run
    assert (first.path, first.recipe, first.one_run) == (["logs/a.jsonl"], "cispo", False)
    assert (second.split_by, second.recipe, second.one_run) == (
        ["condition"],
        Column(column="condition"),
        True,
    )
    assert spec.folder == tmp_path


DOMAIN = """
[domain]
context_length = 8192
verifier = "math-verify 0.8"
epochs = 1.5
"thinking mode" = true
"""


def test_a_domain_under_any_name(tmp_path):
    assert load_spec(write(tmp_path, GOOD)).domain == {}
    assert load_spec(write(tmp_path, DOMAIN + GOOD)).domain == {
        "context_length": 8192,
        "verifier": "math-verify 0.8",
        "epochs": 1.5,
        "thinking mode": True,
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("context_length = 8192", "context_length = [8192]", "key domain.context_length"),
        ("context_length = 8192", "context_length = {tokens = 8192}", "key domain.context_length"),
        ("context_length = 8192", "context_length = inf", "key domain.context_length"),
        ("context_length = 8192", "context_length = 2026-01-01", "key domain.context_length"),
        ("context_length = 8192", '"" = 8192', "key domain"),
        ("[domain]", "[[domain]]", "key domain"),
        ("[domain]", "[domains]", "metric, compute, domain, run"),
    ],
)
def test_one_line_per_problem_of_a_domain(tmp_path, old, new, expected):
    assert old in DOMAIN
    with pytest.raises(InputError) as error:
        load_spec(write(tmp_path, DOMAIN.replace(old, new, 1) + GOOD))
    text = str(error.value)
    assert expected in text
    assert "\n" not in text
    assert "pydantic" not in text


def test_an_error_rate_is_turned_round_by_default(tmp_path):
    spec = load_spec(write(tmp_path, '[metric]\nkind = "error_rate"\n[[run]]\npath = "a"\n'))
    assert spec.metric.limits == (1, 0)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('column = "val/acc"', 'colunm = "val/acc"', "key metric.colunm: unknown key"),
        ('kind = "pass_rate"', 'kind = "reward_rate"', "key metric.kind"),
        ("prompts = 1000", "prompts = 0", "key metric.prompts"),
        ("prompts = 1000", 'prompts = "many"', "key metric.prompts"),
        ("times = 0.02222", "times = -1", "key compute.times"),
        ("times = 0.02222", "times = nan", "key compute.times"),
        ('unit = "gpu_hours"', 'unit = "gpu-hours"', "key compute.unit"),
        ("scale = [0, 100]", "scale = [0]", "key metric.scale"),
        ("scale = [0, 100]", "scale = [1, 1]", "must differ"),
        ('where = ["split=test"]', 'where = ["split"]', "is not COLUMN=VALUE"),
        ('attempts = "longest"', 'attempts = "first"', "key run.2.attempts"),
        ('path = "logs/a.jsonl"', "", "key run.1.path: missing"),
        ("seed = 0", "seed = 0\ngpus = 8", "key run.1.gpus: unknown key"),
        ("prompts = 1000", 'prompts = 1000\ntrials = "n"', "keep one"),
        ("[compute]", "[compute", "is not TOML"),
    ],
)
def test_one_line_per_problem(tmp_path, old, new, expected):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_spec(path)
    text = str(error.value)
    assert expected in text
    assert str(path) in text
    assert "\n" not in text
    assert "pydantic" not in text


def test_an_unknown_section_lists_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"key metrics: unknown key .*metric, compute, domain, run"):
        load_spec(write(tmp_path, "[metrics]\n"))


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_spec(tmp_path / "none.toml")
