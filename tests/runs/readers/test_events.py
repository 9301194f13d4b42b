import struct

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.util.tensor_util import make_tensor_proto

from forecast.errors import InputError
from forecast.runs.readers import LAUNCH, TIME, read_log


def framed(event):
    body = event.SerializeToString()
    header = struct.pack("<Q", len(body))
    return header + struct.pack("<I", masked_crc32c(header)) + body + struct.pack("<I", masked_crc32c(body))


def scalar(step, wall, tensor=False, **values):
    items = []
    for tag, value in values.items():
        if tensor:
            plugin = SummaryMetadata.PluginData(plugin_name="scalars")
            proto = make_tensor_proto(np.float32(value))
            items.append(Summary.Value(tag=tag, tensor=proto, metadata=SummaryMetadata(plugin_data=plugin)))
        else:
            items.append(Summary.Value(tag=tag, simple_value=value))
    return framed(Event(step=step, wall_time=wall, summary=Summary(value=items)))


VERSION = framed(Event(wall_time=1.0, file_version="brain.Event:2"))


def write(folder, stamp, *records):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{stamp}.host.1.0"
    path.write_bytes(b"".join((VERSION, *records)))
    return path


def checked(logs):
    for log in logs:
        assert log.receipt.rows_kept == len(log.records)
    return logs


@pytest.mark.parametrize("tensor", [False, True])
def test_scalars_of_either_kind_by_step(tmp_path, tensor):
    write(
        tmp_path / "run_a",
        10,
        scalar(1, 100.0, tensor, reward=0.5, loss=2.0),
        scalar(1, 101.0, tensor, eval=0.25),
        scalar(2, 110.0, tensor, reward=0.75),
    )
    (log,) = checked(read_log(tmp_path / "run_a"))
    assert (log.format, log.name, log.step) == ("tensorboard", "run_a", "step")
    assert log.records["step"].tolist() == [1, 2]
    assert log.records["reward"].tolist() == [0.5, 0.75]
    assert log.records["eval"].isna().tolist() == [False, True]
    assert log.records[TIME].tolist() == [101.0, 110.0]


def test_last_value_wins_and_is_counted(tmp_path):
    path = write(tmp_path, 10, scalar(1, 1.0, r=0.5), scalar(1, 2.0, r=0.75), scalar(2, 3.0, r=1.0))
    (log,) = checked(read_log(path))
    assert log.records["r"].tolist() == [0.75, 1.0]
    assert log.receipt.dropped == {"scalar logged again at the same step (the last one is kept)": 1}


def test_wrong_checksum_and_cut_off_record_are_counted_and_the_rest_is_read(tmp_path):
    damaged = bytearray(scalar(2, 2.0, r=0.5))
    damaged[-8] ^= 0xFF
    path = write(
        tmp_path,
        10,
        scalar(1, 1.0, r=0.25),
        bytes(damaged),
        scalar(3, 3.0, r=0.75),
        scalar(4, 4.0, r=1.0)[:-7],
    )
    (log,) = checked(read_log(path))
    assert log.records["step"].tolist() == [1, 3]
    assert log.receipt.dropped == {"event record with a wrong checksum": 1, "event record cut off": 1}
    assert log.receipt.rows_read == 4


def test_a_damaged_length_ends_the_file_and_says_how_much_is_lost(tmp_path):
    damaged = bytearray(scalar(2, 2.0, r=0.5))
    damaged[0] ^= 0x01
    path = write(tmp_path, 10, scalar(1, 1.0, r=0.25), bytes(damaged), scalar(3, 3.0, r=0.75))
    (log,) = checked(read_log(path))
    assert log.records["step"].tolist() == [1]
    lost = len(damaged) + len(scalar(3, 3.0, r=0.75))
    assert f"{lost} bytes after a damaged record length could not be read" in log.receipt.notes


def steps(first, last, wall, by=1):
    return [scalar(s, wall + s, r=s / 100) for s in range(first, last + 1, by)]


def test_files_that_go_on_are_one_run_in_order_of_time(tmp_path):
    write(tmp_path / "run", 9, *steps(11, 20, 2000.0))  # the name's stamp does not decide
    write(tmp_path / "run", 10, *steps(1, 10, 1000.0))
    (log,) = checked(read_log(tmp_path / "run"))
    assert log.records["step"].tolist() == list(range(1, 21))
    assert log.records[LAUNCH].tolist() == [0] * 10 + [1] * 10


def test_a_resume_from_a_checkpoint_keeps_both_attempts_apart(tmp_path):
    write(tmp_path / "run", 10, *steps(10, 60, 1000.0, by=10))
    write(tmp_path / "run", 20, *steps(50, 100, 2000.0, by=10))
    (log,) = checked(read_log(tmp_path / "run"))
    assert log.records["step"].tolist() == [10, 20, 30, 40, 50, 60, 50, 60, 70, 80, 90, 100]
    assert log.records[LAUNCH].tolist() == [0] * 6 + [1] * 6


def test_launches_that_start_again_are_runs_of_their_own(tmp_path):
    write(tmp_path / "runs" / "logs", 10, *steps(1, 30, 1000.0))
    write(tmp_path / "runs" / "logs", 20, *steps(5, 50, 2000.0, by=5))  # another logging interval
    write(tmp_path / "runs" / "logs", 30)
    logs = checked(read_log(tmp_path / "runs"))
    assert [log.name for log in logs] == ["runs/10", "runs/20"]
    assert [len(log.records) for log in logs] == [30, 10]
    assert any("event files without scalars skipped" in n for n in logs[0].receipt.notes)


def test_a_second_writer_with_other_tags_is_part_of_the_launch(tmp_path):
    write(tmp_path / "run", 10, *steps(1, 4, 1000.0))
    write(tmp_path / "run", 11, scalar(2, 1002.5, eval=0.5), scalar(4, 1004.5, eval=0.75))
    (log,) = checked(read_log(tmp_path / "run"))
    assert log.records["eval"].tolist()[1::2] == [0.5, 0.75]
    assert LAUNCH not in log.records


def test_no_scalars_is_an_error_for_one_file_and_a_note_in_a_folder(tmp_path):
    path = write(tmp_path / "a", 10)
    with pytest.raises(InputError, match="no scalars in TensorBoard events, found 1 sound records"):
        read_log(path)
    write(tmp_path / "b", 10, *steps(1, 3, 1.0))
    (log,) = checked(read_log(tmp_path))
    assert "skipped (no scalars in TensorBoard events): a" in log.receipt.notes
