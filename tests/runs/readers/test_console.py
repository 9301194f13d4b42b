import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecast.errors import InputError
from forecast.runs.readers import LAUNCH, SOURCE_ROW, TIME, read_log
from forecast.runs.readers.literals import parse_dict


@pytest.fixture
def read(tmp_path):
    def _read(text, name="run_1.log"):
        path = tmp_path / name
        path.write_text(text)
        (log,) = read_log(path)
        assert log.receipt.rows_kept == len(log.records)
        return log

    return _read


def test_trainer_dictionaries(read):
    log = read(
        "=== rho0.10_seed42  GPU=0  START=Sat Apr  4 05:58:17 PM UTC 2026 ===\n"
        "Map: 100%|####| 7473/7473 [00:00<00:00, 44985.22 examples/s]\n"
        "Model config Qwen2Config {\n"
        '  "attention_dropout": 0.0,\n'
        "}\n"
        "  0%|          | 1/200 [00:01<03:00]\r{'loss': 0.1, 'reward': 0.25, 'epoch': 0.01}\n"
        "{'eval_loss': 0.2, 'eval_reward': 0.5, 'epoch': 0.01}\n"
        "{'loss': nan, 'reward': 0.5, 'epoch': 0.02}\n"
        "{'train_runtime': 648.3, 'train_loss': 0.18, 'epoch': 0.05}\n"
        "=== rho0.10_seed42  GPU=0  END=Sat Apr  4 06:09:57 PM UTC 2026   ===\n"
    )
    assert (log.format, log.name, log.step) == ("console-dict", "rho0.10_seed42", None)
    assert log.records["record"].tolist() == [1, 1, 2]
    assert log.records["reward"].dropna().tolist() == [0.25, 0.5]
    assert math.isnan(log.records["loss"].iloc[2])
    assert log.receipt.dropped == {"final summary (train_runtime), not a training record": 1}
    assert log.records[SOURCE_ROW].tolist() == [6, 7, 8]
    assert any("have no step" in n for n in log.receipt.notes)


def test_values_logged_as_strings_become_numbers(read):
    log = read(
        "{'loss': '0.0', 'reward': '0.5', 'step': '10'}\n{'loss': 'nan', 'reward': '0.75', 'step': '20'}\n"
    )
    assert log.records["reward"].tolist() == [0.5, 0.75]
    assert log.records["step"].tolist() == [10, 20]
    assert log.step == "step"
    assert "record" not in log.records


def test_json_objects_inside_log_lines(read):
    log = read(
        "starting\nwarming up\nstill warming up\n"
        '2026-01-01 00:00:00 INFO train: {"step": 1, "acc": 0.5}\nnoise\n'
        '2026-01-01 00:01:00 INFO train: {"step": 2, "acc": 0.6}\nnoise\n'
    )
    assert log.format == "console-dict"
    assert log.records["acc"].tolist() == [0.5, 0.6]
    assert log.records[TIME].diff().iloc[1] == 60


def test_step_in_front_of_a_dictionary(read):
    log = read("a\nstep 10: {'acc': 0.5}\nstep 20: {'acc': 0.6}\n")
    assert log.records["step"].tolist() == [10, 20]


def test_launches_by_run_headers(read):
    log = read(
        "=== a_1 START=x ===\n{'loss': 1.0, 'reward': 1}\n=== a_1 START=y ===\n{'loss': 2.0, 'reward': 1}\n"
    )
    assert log.records[LAUNCH].fillna(0).tolist() == [0, 1]


def test_headers_with_different_names_are_different_runs(read):
    log = read("=== a_1 ===\n{'loss': 1.0, 'reward': 1}\n=== b_2 ===\n{'loss': 2.0, 'reward': 0}\n")
    assert log.run == "run"
    assert log.records["run"].tolist() == log.receipt.runs == ["a_1", "b_2"]


def test_cut_off_dictionaries_are_counted(read):
    log = read(
        "{'loss': 1.0, 'reward': 1}\n{'loss': 2.0, 'rew\n{'loss': 2.0, 'reward': 0}\n{'loss': 3.0, 'rewa"
    )
    assert log.records["reward"].tolist() == [1, 0]
    assert log.receipt.dropped == {"dictionary that is cut off or cannot be parsed": 2}


def test_answers_printed_as_json_do_not_outvote_the_metrics(read):
    answers = '{"answer": 5, "unit": "m"}\n' * 20
    assert read("noise\n" * 80 + answers + "step:1 - critic/kl:0.5\n" + answers).format == "verl"
    log = read("noise\n" * 80 + answers + "{'loss': 1.0, 'reward': 1}\n{'loss': 2.0, 'reward': 0}\n")
    assert log.records["reward"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': np.float64(0.5), 'b': tensor(0.25, device='cuda:0')}", {"a": 0.5, "b": 0.25}),
        (
            "{'a': inf, 'b': -inf, 'c': None, 'd': True}",
            {"a": math.inf, "b": -math.inf, "c": None, "d": True},
        ),
        ("{'a': \"it's\", 'b': [1, (2, 3)]}", {"a": "it's", "b": [1, [2, 3]]}),
        ('{"a": null, "b": {"c": 1e-5}}', {"a": None, "b": {"c": 1e-5}}),
        ("{'a': __import__('os').getcwd()}", None),
        ("{'a': open('/etc/passwd')}", None),
        ("{**x}", None),
        ("{'a', 'b'}", None),
        ("{'a': 1", None),
    ],
)
def test_literals_are_parsed_and_never_evaluated(text, value):
    assert parse_dict(text) == value


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text("ab'\"\\ {}:é\n", min_size=1, max_size=5),
        st.one_of(
            st.integers(),
            st.floats(allow_nan=False),
            st.text("ab'\"\\ {}:é\n", max_size=5),
            st.none(),
            st.booleans(),
        ),
        min_size=1,
    )
)
def test_any_printed_dictionary_is_read_back(record):
    assert parse_dict(repr(record)) == record


VERL = """commit:
\x1b[36m(main_task pid=54569)\x1b[0m {'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,
\x1b[36m(WorkerDict pid=55154)\x1b[0m Total steps: 435, num_warmup_steps: 0
\x1b[36m(main_task pid=54569)\x1b[0m "Initial validation metrics: {'test_score/openai/gsm8k': 0.00076}"
\x1b[36m(main_task pid=54569)\x1b[0m step:0 - a/kl:-0.0 - b/lr(1e-4):0.1 - val/test_score/openai/gsm8k:0.01
\x1b[36m(main_task pid=54569)\x1b[0m Step 1: multiply, so 3 x 4 = 12 apples
\x1b[36m(main_task pid=54569)\x1b[0m step:1 - a/kl:np.float64(0.5) - b/lr(1e-4):nan
\x1b[36m(main_task pid=54569)\x1b[0m "Final validation metrics: {'test_score/openai/gsm8k': np.float64(0.56)}"
"""


def test_verl_lines_and_validation_dictionaries(read):
    log = read(VERL)
    assert (log.format, log.step) == ("verl", "step")
    assert log.records["step"].tolist() == [0, 0, 1, 1]
    assert log.records["a/kl"].tolist()[1:3] == [-0.0, 0.5]
    assert log.records["b/lr(1e-4)"].iloc[1] == 0.1
    assert log.records["val/test_score/openai/gsm8k"].dropna().tolist() == [0.00076, 0.010, 0.56]
    assert log.records[SOURCE_ROW].tolist() == [4, 5, 7, 8]
    assert sum("logged without a step" in n for n in log.receipt.notes) == 2


def test_verl_validation_wrapped_by_pprint(read):
    log = read(
        "(TaskRunner pid=7) (\"Initial validation metrics: {'val-core/openai/gsm8k/reward/mean@1': \"\n"
        "(TaskRunner pid=7)  \"np.float64(0.25), 'val-aux/x': 1.0}\")\n"
        "(TaskRunner pid=7) step:0 - val-core/openai/gsm8k/reward/mean@1:0.25 - val-aux/x:1.0\n"
        "(TaskRunner pid=7) step:1 - actor/kl:0.25 - timing_s/gen:3\n"
    )
    assert log.records["val-core/openai/gsm8k/reward/mean@1"].dropna().tolist() == [0.25, 0.25]
    assert log.records["step"].tolist() == [0, 0, 1]


FREE = """Step 0/3 : FROM base
=> Step 1: RUN sleep 5
INFO 12-31 23:59:00 [config.py:717] This model supports multiple tasks: {'reward', 'classify'}
resumed at pass 0, batch 16, global_step 16

pass 1/4 step 17/256 lr 1.981e-06 reward 0.764

INFO 01-01 00:09:00 [llm_engine.py:240] step 3 took 12 s
pass 1/4 step 18/256 lr 1.978e-06 reward nan
"""


def test_free_text_and_its_traps(read):
    log = read(FREE)
    assert (log.format, log.step) == ("console", "step")
    assert log.records["step"].tolist() == [17, 18]
    assert log.records["lr"].tolist() == [1.981e-06, 1.978e-06]
    assert math.isnan(log.records["reward"].iloc[1])
    assert log.records["step (of)"].tolist() == [256, 256]
    assert log.records[TIME].diff().iloc[1] == 600
    assert any("no year" in n for n in log.receipt.notes)
    assert any(n.startswith("line 4: resumed at") for n in log.receipt.notes)


def test_free_text_with_bars_percent_lists_and_units(read):
    log = read(
        "2026-04-26 03:38:38,866 INFO     __main__ - Iter 1 | loss=-0.0 | reward mean=0.914 std=0.164 | "
        "gt_match=78.0% | rewards=[1,0.5] | phase=GROUNDED | skipped=8(0var=8) | time=127.5s\n"
        "2026-04-26 03:38:39,000 INFO     __main__ -   final-answer accuracy: 79.3%\n"
        "2026-04-26 03:41:58,866 INFO     __main__ - Iter 2 | loss=0.1 | reward mean=0.848 std=0.216 | "
        "gt_match=65.2% | rewards=[0,0] | phase=SELFPLAY | skipped=2(0var=2) | time=199.5s\n"
        "Accuracy at step 2: 45.0%\n"
    )
    records = log.records
    assert records["step"].tolist() == [1, 2, 2]
    assert records["reward mean"].dropna().tolist() == [0.914, 0.848]
    assert records["gt_match (percent)"].dropna().tolist() == [78.0, 65.2]
    assert records["final-answer accuracy (percent)"].iloc[0] == 79.3
    assert records["Accuracy (percent)"].iloc[2] == 45.0
    assert records["rewards"].tolist()[:2] == [[1.0, 0.5], [0.0, 0.0]]
    assert records["time (s)"].dropna().tolist() == [127.5, 199.5]
    assert records["phase"].tolist()[:2] == ["GROUNDED", "SELFPLAY"]
    assert records[TIME].iloc[1] - records[TIME].iloc[0] == 200
    assert any("percent" in n for n in log.receipt.notes)


@pytest.mark.parametrize(
    "line", ["step={} loss={}", "step: {}, loss: {}", "[step {:04d}] loss={}", "Step {} | loss {}"]
)
def test_ways_to_write_a_step(read, line):
    log = read("".join(line.format(k, k / 8) + "\n" for k in range(1, 5)))
    assert log.records["step"].tolist() == [1, 2, 3, 4]
    assert log.records["loss"].tolist() == [0.125, 0.25, 0.375, 0.5]


def test_epochs_stand_in_for_missing_steps(read):
    log = read("Epoch 1/10: loss=0.5 acc=0.6\nEpoch 2/10: loss=0.4 acc=0.7\n")
    assert log.records["epoch"].tolist() == [1, 2]
    assert log.records["acc"].tolist() == [0.6, 0.7]
    assert log.step is None


def test_thousands_in_text_are_not_cut_to_their_first_digits(read):
    log = read("step 1 tokens=1,234 loss=0.5\nstep 2 tokens=2,468 loss=0.25\n")
    assert "tokens" not in log.records
    assert log.records["loss"].tolist() == [0.5, 0.25]


def test_a_stray_json_line_does_not_make_it_json(read):
    log = read('{"step": 0, "seed": 1}\n' + "".join(f"step {k} reward {k / 8}\n" for k in range(5)))
    assert log.format == "console"
    assert log.records["step"].tolist() == [0, 1, 2, 3, 4]


def test_prose_about_logs_is_no_log(tmp_path):
    path = tmp_path / "README.log"
    path.write_text(
        'Free text, lines like "pass 1/4 step 49/256 lr 1.830e-06 reward 0.894" that crashed twice on '
        'a shared machine, after which its authors wrote "step:3 - a:1" and gave up for good.\n'
    )
    with pytest.raises(InputError, match="no records found, found 1 lines of text without metrics"):
        read_log(path)
