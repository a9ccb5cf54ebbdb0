# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_ variables: honoured, or named."""

import json

import numpy as np
import pytest

import hpccoll
import hpccoll.horovod as hvd
from hpccoll.horovod import environment


@pytest.mark.parametrize(
    ("variable", "text", "knobs", "line"),
    [
        (
            "FUSION_THRESHOLD",
            "1048576",
            {"fusion_threshold": 1 << 20},
            "its name is now HPCCOLL_FUSION_THRESHOLD",
        ),
        ("CYCLE_TIME", "2.5", {"raise_window": 0.0025}, "its name is now HPCCOLL_RAISE_WINDOW"),
        ("STALL_CHECK_TIME_SECONDS", "7", {"stall_warning": 7.0}, "its name is now HPCCOLL_STALL_WARNING"),
        ("STALL_CHECK_DISABLE", "1", {"stall_warning": 0.0, "stall_limit": 0.0}, "HPCCOLL_STALL_LIMIT=0"),
        ("STALL_CHECK_DISABLE", "0", {}, ""),
        ("LOG_LEVEL", "ERROR", {"verbose": 0}, "its name is now HPCCOLL_VERBOSE"),
        ("TIMELINE", "trace.json", {"timeline": "trace.json"}, "its name is now HPCCOLL_TIMELINE"),
        ("TIMELINE", "DYNAMIC", {"timeline": ""}, "its name is now HPCCOLL_TIMELINE"),
        ("DYNAMIC_PROCESS_SETS", "1", {}, "is not needed"),
        ("CONTROLLER", "gloo", {}, "HOROVOD_CONTROLLER: no counterpart in hpccoll, without effect"),
    ],
)
def test_one_variable(variable, text, knobs, line):
    found = environment.read({f"HOROVOD_{variable}": text, "PATH": "/bin"})
    assert found.knobs == knobs
    assert len(found.lines) == bool(line)
    assert line in "".join(found.lines)


def test_the_new_name_goes_first():
    found = environment.read({"HOROVOD_CACHE_CAPACITY": "5", "HPCCOLL_CACHE_CAPACITY": "7"})
    assert found.knobs == {}
    assert found.lines == ["HPCCOLL_CACHE_CAPACITY goes before HOROVOD_CACHE_CAPACITY"]


def test_all_without_a_counterpart_in_one_line():
    (line,) = environment.read({"HOROVOD_CPU_OPERATIONS": "1", "HOROVOD_NUM_NCCL_STREAMS": "2"}).lines
    assert line.startswith("HOROVOD_CPU_OPERATIONS, HOROVOD_NUM_NCCL_STREAMS: ")


def test_nonsense_is_an_error():
    with pytest.raises(ValueError, match=r"HOROVOD_FUSION_THRESHOLD='much' .* HPCCOLL_FUSION_THRESHOLD"):
        environment.read({"HOROVOD_FUSION_THRESHOLD": "much"})


@pytest.mark.mpi(min_size=1)
def test_timeline(monkeypatch, tmp_path):
    """By the variable from the start on, and by the function; rank 0 writes."""
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "whole.json"))
    hvd.init()
    hpccoll.allreduce(np.ones(2), name="before")
    hvd.stop_timeline()
    hvd.start_timeline(str(tmp_path / "part.json"), mark_cycles=True)
    hpccoll.allreduce(np.ones(2), name="between")
    hvd.stop_timeline()
    if hvd.rank() == 0:
        whole, part = (
            str(json.loads((tmp_path / name).read_text())["traceEvents"]) for name in ("whole.json", "part.json")
        )
        assert "before" in whole
        assert "between" not in whole
        assert "between" in part
    else:
        assert not list(tmp_path.iterdir())
    hvd.shutdown()


@pytest.mark.mpi(min_size=1)
def test_a_timeline_goes_on_in_another_file(tmp_path):
    """Horovod takes a start without a stop on all ranks: the file changes, or it is the same one and goes on."""
    hvd.init()
    for name in ("first", "second", "second"):
        hvd.start_timeline(str(tmp_path / f"{name}.json"))
        hpccoll.allreduce(np.ones(2), name=f"in {name}")
    hvd.stop_timeline()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        for name, other in (("first", "second"), ("second", "first")):
            events = json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"]
            assert f"in {name}" in str(events) and f"in {other}" not in str(events)
            completed = [event for event in events if event.get("name") == "complete"]
            assert len(completed) == (1 if name == "first" else 2)
    hvd.shutdown()


@pytest.mark.mpi(min_size=1)
def test_in_a_job(monkeypatch, capfd):
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "3")
    monkeypatch.setenv("HOROVOD_NUM_NCCL_STREAMS", "1")
    hvd.init()
    assert hpccoll.world().base.settings.raise_window == 0.003
    output = capfd.readouterr().err
    if hvd.rank() == 0:
        assert "hpccoll: HOROVOD_CYCLE_TIME is honoured" in output
        assert "hpccoll: HOROVOD_NUM_NCCL_STREAMS: no counterpart" in output
    else:
        assert "HOROVOD" not in output
    hvd.shutdown()
