"""Bad input ends in one line that says where and what to do, before any sampling, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Command, fill, tree
from fits_by_hand import fit_by_hand

import forecast.fits
import forecast.inference.sampling
from forecast.fits import FORMAT, Fit

HEAD = "gpu_hours,acc\n"
ROWS = [f"{10 * i},{0.1 + 0.05 * i:.3f}" for i in range(1, 9)]
GOOD = HEAD + "\n".join(ROWS) + "\n"
PERCENT = HEAD + "".join(f"{10 * i},{10 + 5 * i}\n" for i in range(1, 9))


def table(columns: str, *cells: str) -> str:
    """Eight rising rows; in `cells`, {x} is the compute and {y} the value."""
    row = ",".join(cells) + "\n"
    return columns + "\n" + "".join(row.format(x=10 * i, y=f"{0.1 * i:.2f}", i=i) for i in range(1, 9))


@pytest.fixture(autouse=True)
def no_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(*arguments: object, **options: object) -> None:
        raise AssertionError("bad input came as far as the sampler")

    monkeypatch.setattr(forecast.inference.sampling, "sample_checked", sample)


@pytest.fixture
def refuse(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command that must fail with `code`; return its line."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)

    def run(files: dict[str, str | bytes], *arguments: object, code: int = 2) -> str:
        fill(place, files)
        before = tree(tmp_path)
        answer = command(*arguments)
        assert tree(tmp_path) == before
        assert answer.code == code, answer.err
        assert answer.out == ""
        assert answer.last.startswith("rlforecast: ")
        for note in filter(None, answer.notes):  # what was read before the problem showed
            assert note.startswith("  note: ") or " rows read, " in note, note
        assert "Traceback" not in answer.err
        return answer.last.removeprefix("rlforecast: ")

    return run


# Logs: content, options, exit code, words that must be in the line, in this order

LOGS: dict[str, tuple[str | bytes, list[str], int, list[str]]] = {
    "missing metric": (
        GOOD,
        ["--metric", "pass"],
        2,
        ["p.csv: no column 'pass'", "gpu_hours, acc", "inspect"],
    ),
    "missing compute": (GOOD, ["--compute", "flops"], 2, ["p.csv: no column 'flops'", "gpu_hours, acc"]),
    "missing trials": (GOOD, ["--trials", "n"], 2, ["p.csv: no column 'n', found gpu_hours, acc."]),
    "missing stratum": (GOOD, ["--stratum", "class"], 2, ["p.csv", "no column 'class'"]),
    "values all nan": (HEAD + "10,nan\n20,NaN\n", ["--metric", "acc"], 2, ["p.csv", "no value of 'acc'"]),
    "values all inf": (HEAD + "10,inf\n20,inf\n", ["--metric", "acc"], 2, ["p.csv", "'acc' is infinite"]),
    "compute all nan": (
        HEAD + "nan,.1\nnan,.2\n",
        ["--compute", "gpu_hours"],
        2,
        ["p.csv", "'gpu_hours' is empty"],
    ),
    "negative compute": (
        GOOD.replace("20,", "-20,"),
        [],
        2,
        ["p.csv, row 3, run p", "'gpu_hours' is negative", "found -20", "Correct"],
    ),
    "zero compute": (
        HEAD + "0,.1\n0,.2\n0,.3\n",
        [],
        2,
        ["p.csv", "gpu_hours (zero throughout)", "--compute"],
    ),
    "text compute": (
        table("gpu_hours,acc", "{x}h", "{y}"),
        [],
        2,
        ["p.csv", "gpu_hours (text)", "--compute"],
    ),
    "time of day": (
        table("timestamp,acc", "17650000{x}", "{y}"),
        ["--compute", "timestamp", "--compute-unit", "gpu_hours"],
        2,
        ["p.csv", "time of day", "elapsed"],
    ),
    "decreasing": (
        HEAD + "".join(f"{10 * (9 - i)},{0.1 + 0.05 * i:.3f}\n" for i in range(1, 9)),
        [],
        1,
        ["no forecast: p collapsed or declining", "0.475", "0.2"],
    ),
    "cumulative said per step": (
        GOOD,
        ["--cumulate"],
        2,
        ["looks cumulative already", "10", "80", "leave out"],
    ),
    "per step said cumulative": (
        table("step,seconds,acc", "{i}", "5", "{y}"),
        ["--compute", "seconds", "--compute-unit", "gpu_hours"],
        2,
        ["'seconds' is not cumulative", "add --cumulate"],
    ),
    "percent as fraction": (
        PERCENT,
        [],
        2,
        ["p.csv, row 2, column acc", "percent", "found 15", "--scale 0,100"],
    ),
    "fraction as percent": (
        GOOD,
        ["--scale", "0,100"],
        2,
        ["p.csv, column acc", "fraction", "leave out --scale"],
    ),
    "outside the scale": (GOOD.replace("0.200", "-0.2"), [], 2, ["row 3, column acc", "-0.2", "--scale"]),
    "enormous value": (GOOD.replace("0.200", "1e300"), [], 2, ["row 3, column acc", "1e+300", "--scale"]),
    "one row": (HEAD + "10,.1\n", [], 1, ["no forecast: p only 1 evaluation", "at least 3"]),
    "two rows": (HEAD + "10,.1\n20,.3\n", [], 1, ["no forecast: p only 2 evaluations", "at least 3"]),
    "only step 0": ("step,val/acc\n0,.1\n", [], 2, ["p.csv", "'val/acc'", "after training began"]),
    "flat": (
        HEAD + "".join(f"{10 * i},{0.3 + 0.001 * (-1) ** i}\n" for i in range(1, 13)),
        [],
        1,
        ["p flat"],
    ),
    "dead": (HEAD + "".join(f"{10 * i},0\n" for i in range(1, 13)), [], 1, ["p flat"]),
    "collapsed": (
        HEAD + "".join(f"{10 * i},{0.1 + 0.05 * i if i < 9 else 0.1}\n" for i in range(1, 20)),
        [],
        1,
        ["p collapsed"],
    ),
    "two runs unnamed": (
        HEAD.replace("acc", "run,acc")
        + "".join(f"{10 * i},{r},{0.1 * i:.2f}\n" for i in range(1, 9) for r in "ab"),
        [],
        2,
        ["p.csv, run p", "'run'", "--run run", "--where", "--stratum"],
    ),
    "mixed units": (
        "gpu_hours,unit,acc\n1,gpu_hours,.1\n2,flops,.2\n",
        [],
        2,
        ["p.csv", "column unit", "flops"],
    ),
    "mixed recipes": (
        "gpu_hours,recipe,acc\n1,a,.1\n2,b,.2\n3,a,.3\n",
        ["--recipe", "recipe"],
        2,
        ["p.csv, column recipe", "a, b", "--run recipe"],
    ),
    "text in a number": (
        GOOD.replace("0.200", "oops"),
        [],
        2,
        ["p.csv, row 3, column acc", "'oops'", "blank"],
    ),
    "text column": (HEAD + "1,good\n2,bad\n", ["--metric", "acc"], 2, ["row 2, column acc", "'good'"]),
    "zero trials": (
        table("gpu_hours,acc,n", "{x}", "{y}", "0"),
        ["--trials", "n"],
        2,
        ["row 2, column n", "found 0"],
    ),
    "text trials": (
        table("gpu_hours,acc,n", "{x}", "{y}", "many"),
        ["--trials", "n"],
        2,
        ["row 2, column n", "many"],
    ),
    "endless trials": (
        table("gpu_hours,acc,n", "{x}", "{y}", "1e30"),
        ["--trials", "n"],
        2,
        ["row 2, column n"],
    ),
    "infinite trials": (
        table("gpu_hours,acc,n", "{x}", "{y}", "inf"),
        ["--trials", "n"],
        2,
        ["row 2, column n"],
    ),
    "two sizes": (
        table("gpu_hours,acc,n", "{x}", "{y}", "9"),
        ["--trials", "n", "--prompts", "9"],
        2,
        ["trials and prompts both", "keep one"],
    ),
    "text seed": (
        table("gpu_hours,acc,s", "{x}", "{y}", "blue"),
        ["--seed-column", "s"],
        2,
        ["run p", "seed is no whole number", "blue"],
    ),
    "preference": (
        table("gpu_hours,rewards/accuracies", "{x}", "{y}"),
        ["--metric", "rewards/accuracies"],
        2,
        ["preference rate", "--kind preference"],
    ),
    "training reward": (
        table("gpu_hours,train/reward", "{x}", "{y}"),
        ["--metric", "train/reward"],
        2,
        ["'train/reward'", "training prompts", "--split train"],
    ),
    "training reward unnamed": (
        table("gpu_hours,train/reward", "{x}", "{y}"),
        [],
        2,
        ["p.csv: no column is clearly a validation pass_rate", "train/reward", "--metric"],
    ),
    "empty": ("", [], 2, ["p.csv: file is empty"]),
    "only zero bytes": (b"\0" * 500, [], 2, ["p.csv: file is empty"]),
    "header only": (HEAD, [], 2, ["p.csv: table without a usable row", "gpu_hours, acc"]),
    "binary": (bytes(range(256)) * 20, [], 2, ["p.csv: binary file", "00 01 02", "expected CSV"]),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), [], 2, ["p.csv: binary file", "89 50"]),
    "wide text without a mark": (GOOD.encode("utf-16-le"), [], 2, ["p.csv: binary file"]),
    "latin-1 in a number": (GOOD.encode() + b"90,\xe9\n", [], 2, ["p.csv, row 10, column acc", "é"]),
    "prose": ("hello world\nthis is no log\n", [], 2, ["p.csv: no records found", "2 lines"]),
    "cut JSON": ('[{"step":1,"val/acc":0.1},{"step":2,"val/a', [], 2, ["p.csv: JSON", "line 1", "cut off"]),
    "a configuration": (
        '{"model":{"layers":4},"lr":1e-5}',
        [],
        2,
        ["p.csv: no records", "model, lr", "Give the log"],
    ),
    "a JSON list": ("[1,2,3]", [], 2, ["p.csv: no records", "a JSON list of 3"]),
    "an empty object": ("{}", [], 2, ["p.csv: no records", "found {}"]),
    "nested for ever": ("[" * 100_000, [], 2, ["p.csv: no records"]),
    "uneven JSON": ('{"step":[1,2,3],"acc":[0.1,0.2]}', [], 2, ["different lengths", "step 3, acc 2"]),
    "broken Parquet": (b"PAR1" + b"x" * 100, [], 2, ["p.csv: Parquet file is damaged"]),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_log_that_cannot_be_fitted(refuse: Callable[..., str], case: str) -> None:
    content, options, code, words = LOGS[case]
    line = refuse({"p.csv": content}, "fit", "p.csv", "-o", "out", *options, code=code)
    at = -1
    for word in words:
        at = line.lower().find(word.lower(), at + 1)
        assert at >= 0, f"{word!r} not in {line!r}"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--kind", "rate", "'pass_rate'.*found 'rate'"),
        ("--split", "dev", "'validation'.*found 'dev'"),
        ("--pool", "some", "found 'some', expected auto"),
        ("--prior", "narrow", "found 'narrow', expected wide"),
        ("--floor", "none", "found 'none', expected measured"),
        ("--floor", "nan", "floor outside.*found nan"),
        ("--floor", "2", "floor outside.*found 2"),
        ("--scale", "0", "two numbers"),
        ("--scale", "a,b", "'a,b', expected numbers"),
        ("--scale", "1,1", "must differ"),
        ("--scale", "0,nan", "finite"),
        ("--compute-unit", "hours", "'gpu_hours'.*found 'hours'"),
        ("--compute-unit", "flops", "is in gpu_hours.*--compute-unit gpu_hours"),
        ("--times", "0", "greater than 0"),
        ("--times", "nan", "finite"),
        ("--price", "-1", "greater than or equal to 0"),
        ("--chance", "1", "less than 1"),
        ("--prompts", "0", "not in the range"),
        ("--prompts", "1" + "0" * 30, "less than or equal to 1000000000"),
        ("--samples", "many", "not a valid integer"),
        ("--seed", "-1", "not in the range"),
        ("--attempts", "first", "'latest', 'longest'"),
        ("--where", "acc", "not COLUMN=VALUE"),
        ("--where", "acc=7", "no row has acc=7, found acc: 0.15"),
        ("--upto", "5", "compute 10 to 80 gpu_hours.*--upto"),
        ("--from", "500", "compute 10 to 80 gpu_hours.*--from"),
        ("--upto", "nan", "--upto is no number"),
        ("--metric", "", "--metric: .*at least 1 character"),
        ("--run", "", "--run: .*at least 1 character"),
        ("--nonsense", "1", "No such option '--nonsense'.*rlforecast fit --help"),
        ("--spec", "runs.toml", "either paths or a spec"),
    ],
)
def test_an_option_that_makes_no_sense(
    refuse: Callable[..., str], option: str, value: str, words: str
) -> None:
    line = refuse({"p.csv": GOOD}, "fit", "p.csv", "-o", "out", option, value)
    assert re.search(words, line), line
    assert option.lstrip("-").partition("-")[0] in line or "fitted range" in line or "p.csv" in line


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("[metric\n", "runs.toml: is not TOML.*line 1"),
        ("", r"key run: missing.*\[\[run\]\]"),
        ('[run]\npath = "p.csv"\n', r"key run.*write \[\[run\]\]"),
        ('[metric]\ncolum = "acc"\n[[run]]\npath = "p.csv"\n', "key metric.colum: unknown key.*column, kind"),
        (
            '[metric]\nprompts = "many"\n[[run]]\npath = "p.csv"\n',
            "key metric.prompts: .*integer, found 'many'",
        ),
        ('[[run]]\npath = "p.csv"\nseed = 99999999999999999999\n', "key run.1.seed"),
        ('[[run]]\npath = "p.csv"\nrecipe = {colum = "acc"}\n', "key run.1.recipe.colum: unknown key"),
        ("[[run]]\npath = 3\n", "key run.1.path"),
        ("[[run]]\npath = []\n", "key run.1.path"),
        ('[[run]]\npath = ""\n', "key run.1.path"),
        ('[[run]]\npath = "*.jsonl"\n', "no file matches.*relative to the spec"),
        ('[[run]]\npath = "none.csv"\n', "none.csv: no such file"),
        ('[[run]]\npath = "p.csv"\nfloor = 5\n', "step 0.*found 5"),
    ],
)
def test_a_spec_that_is_wrong(refuse: Callable[..., str], spec: str, words: str) -> None:
    line = refuse({"p.csv": GOOD, "runs.toml": spec}, "fit", "runs.toml", "-o", "out")
    assert re.search(f"(?i){words}", line), line


def test_options_that_a_spec_would_ignore_are_refused(refuse: Callable[..., str]) -> None:
    files = {"p.csv": GOOD, "runs.toml": '[[run]]\npath = "p.csv"\n'}
    line = refuse(files, "fit", "runs.toml", "-o", "out", "--prompts", "9", "--seed-column", "s")
    assert "--seed-column, --prompts" in line or "--prompts, --seed-column" in line
    assert "either paths or a spec" in refuse({}, "fit", "runs.toml", "p.csv", "-o", "out")


# Places


@pytest.mark.parametrize(
    ("files", "arguments", "words"),
    [
        ({}, ["fit", "none.csv", "-o", "out"], "none.csv: no such file or folder"),
        ({}, ["fit", "-o", "out"], "no path given"),
        ({"logs/.keep": ""}, ["fit", "logs", "-o", "out"], "logs: no logs in this folder, found no files"),
        (
            {"logs/readme.md": "hello\n"},
            ["fit", "logs", "-o", "out"],
            "logs: no logs in this folder.*readme.md",
        ),
        (
            {"a.csv": GOOD, "b.csv": GOOD.replace("gpu_hours", "flops")},
            ["fit", "a.csv", "b.csv", "-o", "out"],
            "units",
        ),
        ({"out/x": ""}, ["fit", "p.csv", "-o", "out"], "out: output folder exists.*--overwrite"),
        ({"out": ""}, ["fit", "p.csv", "-o", "out"], "out: output folder is a file.*-o"),
        ({"out/x": ""}, ["fit", "p.csv", "-o", "out", "--overwrite"], "out: .*other files.*found x"),
        ({"file": ""}, ["fit", "p.csv", "-o", "file/out"], "file/out: .*cannot be written.*-o"),
        ({}, ["fit", "p.csv", "-o", "x" * 300], "cannot be written.*File name too long"),
        ({}, ["fit", "p.csv", "-o", "a/b/out", "--metric", "none"], "no column 'none'"),
        ({}, ["fit", "p.csv"], "Missing option '-o'"),
        ({}, ["inspect", "none.csv"], "none.csv: no such file"),
        ({}, ["inspect"], "Missing argument 'PATH...'.*rlforecast inspect --help"),
        ({"s.toml": ""}, ["inspect", "p.csv", "--write-spec", "s.toml"], "s.toml: exists.*--overwrite"),
        ({}, ["predict", "none", "--at", "1"], "none: not a saved fit.*no fit.json.*fit -o"),
        ({}, ["predict", "p.csv", "--at", "1"], "p.csv: not a saved fit"),
        ({}, ["forecast"], "No such command 'forecast'.*rlforecast --help"),
    ],
)
def test_a_place_that_is_not_there(
    refuse: Callable[..., str], files: dict[str, str | bytes], arguments: list[str], words: str
) -> None:
    line = refuse({"p.csv": GOOD} | files, *arguments)
    assert re.search(words, line), line


def test_a_file_name_that_is_no_utf_8(refuse: Callable[..., str]) -> None:
    name = os.fsdecode(b"caf\xe9.csv")
    assert "no UTF-8. Rename it" in refuse({name: GOOD}, "fit", name, "-o", "out")


def test_names_in_another_encoding_stay_apart(tmp_path: Path) -> None:
    names = [b"caf\xe9", b"caf\xe8"]
    rows = [b"%s,%d,%.2f\n" % (n, 10 * i, 0.1 * i) for n in names for i in range(1, 9)]
    (tmp_path / "p.csv").write_bytes(b"run,gpu_hours,acc\n" + b"".join(rows))
    runs = forecast.read_runs(tmp_path / "p.csv", run="run")
    assert set(runs.names) == {"café", "cafè"}
    assert any("16 lines" in note and "Latin-1" in note for note in runs.receipts[0].notes)


def test_half_a_character_in_json_is_spelled_out(tmp_path: Path) -> None:
    lines = [json.dumps({"step": i, "val/acc": i / 10, "note": "\ud83d", "a\ud83d": 1}) for i in range(1, 9)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    assert forecast.read_runs(tmp_path / "p.jsonl").names == ["p"]


def test_a_blank_counter_costs_only_its_own_evaluation(tmp_path: Path) -> None:
    for broken in ("", "nan", "inf"):
        (tmp_path / "p.csv").write_text(GOOD.replace("20,", f"{broken},"))
        runs = forecast.read_runs(tmp_path / "p.csv")
        assert runs.table["compute"].tolist() == [10, 30, 40, 50, 60, 70, 80]
        assert runs.receipts[0].dropped == {"no compute (gpu_hours not logged)": 1}


def test_a_folder_that_may_not_be_looked_into_is_one_line(
    refuse: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.cli._close_stdout", lambda: None)

    is_dir = Path.is_dir

    def denied(self: Path) -> bool:
        if self.parent.name == "secret":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return is_dir(self)

    monkeypatch.setattr(Path, "is_dir", denied)
    assert "secret/p.csv: cannot be read or written, found Permission denied" in refuse(
        {}, "inspect", "secret/p.csv"
    )


@pytest.mark.parametrize("writer", ["xarray.DataTree.to_netcdf", "pyarrow.parquet.write_table"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_no_space_or_an_interrupt_while_saving(
    refuse: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    hand_fit: Fit,
    error: BaseException,
    writer: str,
) -> None:
    monkeypatch.setattr(forecast.fits, "fit", lambda *arguments, **options: hand_fit)

    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(writer, fail)
    interrupted = isinstance(error, KeyboardInterrupt)
    line = refuse({"p.csv": GOOD}, "fit", "p.csv", "-o", "a/b/out", code=130 if interrupted else 2)
    assert line == (
        "interrupted, nothing was written"
        if interrupted
        else "a/b/out: cannot be written, found No space left on device. Choose another place"
    )


# Saved fits


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str | bytes]]:
    """Files of a sound fit and of one whose diagnostics failed."""
    files: dict[str, dict[str, str | bytes]] = {}
    for kind, passed in (("sound", True), ("failed", False)):
        folder = tmp_path_factory.mktemp("saved") / "fit"
        fit_by_hand(passed=passed).save(folder)
        files[kind] = {f"fit/{path.name}": path.read_bytes() for path in folder.iterdir()}
    return files


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--at", "0"], "must be positive, found 0"),
        (["--at", "-5"], "must be positive, found -5"),
        (["--at", "nan"], "must be positive, found nan"),
        (["--at", "1e400"], "must be positive, found inf"),
        (["--at", ""], "'--at': found ''"),
        (["--at", "1,"], "'--at': found '1,'"),
        (["--at", "1", "--to", "2"], "either --at or --to, found both"),
        ([], "either --at or --to, found neither"),
        (["--to", "900"], "--to must lie beyond.*found 900.*more than 1000 gpu_hours"),
        (["--to", "nan"], "--to must lie beyond.*found nan"),
        (["--at", "1", "--level", "seed"], "unknown level, found 'seed', expected run"),
        (["--at", "1", "--quantity", "mean"], "unknown quantity, found 'mean', expected curve"),
        (["--at", "1", "--name", "gamma"], "no such run, found gamma, expected alpha | beta"),
        (["--at", "1", "--format", "xml"], "'--format': 'xml'"),
    ],
)
def test_a_forecast_that_cannot_be_asked_for(
    refuse: Callable[..., str], saved: dict[str, dict[str, str | bytes]], arguments: list[str], words: str
) -> None:
    assert re.search(words, refuse(saved["sound"], "predict", "fit", *arguments))


def edited(**changes: object) -> Callable[[dict[str, str | bytes]], None]:
    def change(files: dict[str, str | bytes]) -> None:
        summary = json.loads(files["fit/fit.json"])
        for key, value in changes.items():
            inner, _, name = key.rpartition("__")
            (summary[inner] if inner else summary)[name] = value
        files["fit/fit.json"] = json.dumps(summary)

    return change


def cut(name: str) -> Callable[[dict[str, str | bytes]], None]:
    return lambda files: files.__setitem__(f"fit/{name}", files[f"fit/{name}"][:100])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda files: files.pop("fit/posterior.nc"), "fit: not a saved fit, found no posterior.nc"),
        (cut("posterior.nc"), "fit/posterior.nc: changed after"),
        (cut("runs.parquet"), "fit/runs.parquet: changed after"),
        (cut("fit.json"), "fit/fit.json: damaged"),
        (edited(format=FORMAT + 1), "later rlforecast"),
        (edited(settings__upto=4000), "fit/fit.json: changed after"),
        (edited(settings__upto="8000"), "fit/fit.json: changed after"),
        (edited(settings__seed=-1), "fit/fit.json: changed after"),
        (edited(checks=[]), "fit/fit.json: changed after"),
        (edited(refused={"alpha": "flat"}), "fit/fit.json: changed after"),
        (edited(pooled=None), "fit/fit.json: changed after"),
    ],
)
def test_a_damaged_fit(
    refuse: Callable[..., str],
    saved: dict[str, dict[str, str | bytes]],
    damage: Callable[[dict[str, str | bytes]], None],
    words: str,
) -> None:
    files = dict(saved["sound"])
    damage(files)
    line = refuse(files, "predict", "fit", "--at", "16000")
    assert words in line
    assert line.endswith(("Run fit again", "Update rlforecast", "Name the folder given to fit -o"))


def test_a_forecast_from_failed_diagnostics_is_withheld(
    refuse: Callable[..., str], saved: dict[str, dict[str, str | bytes]]
) -> None:
    line = refuse(saved["failed"], "predict", "fit", "--at", "16000", code=1)
    assert line.startswith("forecast withheld")
    assert "R-hat" in line


# The command itself


@pytest.mark.parametrize(("content", "code"), [(GOOD.replace("0.200", "oops"), 2), (HEAD + "10,.1\n", 1)])
def test_the_installed_command_says_the_same(tmp_path: Path, content: str, code: int) -> None:
    (tmp_path / "p.csv").write_text(content)
    rlforecast = Path(sys.executable).with_name("rlforecast")
    done = subprocess.run(
        [rlforecast, "fit", "p.csv", "-o", "a/out"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.startswith("rlforecast: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    assert tree(tmp_path) == ["p.csv"]
