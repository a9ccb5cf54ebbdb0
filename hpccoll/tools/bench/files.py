# SPDX-License-Identifier: Apache-2.0
"""The HDF5 file of results: raw samples, and the facts to judge and repeat them. See docs/measure.md."""

import importlib.util
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll import durable, hdf5
from hpccoll.tools.bench.results import KEY_FIELDS, Case, Facts, Key, Results, ResultsError

FORMAT, VERSION = "hpccoll results", 1
PLAIN = ("date", "command", "hpccoll", "build", "revision", "launcher", "job", "ranks", "nodes", "oversubscribed")
"""Facts of a launch that are separate attributes; `facts` has all of them as JSON."""


def check_h5py() -> None:
    """Refuse before anything is measured.

    :raises ResultsError: h5py is missing
    """
    if importlib.util.find_spec("h5py") is None:
        raise ResultsError("results are kept in HDF5 by h5py, which is missing: pip install 'hpccoll[bench]'")


def write(path: Path, results: Results) -> None:
    """Write a file, atomically: an existing file is replaced by the complete new one.

    :raises ResultsError: it could not be written; an existing file is unchanged
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with durable.replacing(path) as new, hdf5.writing(new) as file:
            _write_all(file, results)
    except OSError as error:
        raise ResultsError(f"{path} could not be written: {error}") from error


def check_place(path: Path) -> None:
    """Refuse before anything is measured.

    :raises ResultsError: no file of this name could be written
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.check(path)
    except OSError as error:
        raise ResultsError(f"{path} could not be written: {error}") from error


def _write_all(file: Any, results: Results) -> None:
    file.attrs.update({"format": FORMAT, "version": VERSION})
    for number, launch in enumerate(results.launches):
        _write_launch(file.create_group(f"launches/{number:04}"), launch)
    for number, case in enumerate(results.cases.values()):
        _write_case(file.create_group(f"cases/{number:04}"), case)


def _write_launch(group: Any, launch: Facts) -> None:
    import h5py

    group.attrs.update({name: launch[name] for name in PLAIN if launch.get(name) is not None})
    group.attrs["facts"] = json.dumps(launch)
    for name in ("host", "cpus"):
        values = [str(rank.get(name, "")) for rank in launch.get("placement", [])]
        group.create_dataset(name, data=values, dtype=h5py.string_dtype())


def _write_case(group: Any, case: Case) -> None:
    group.attrs.update(asdict(case.key))
    group.attrs["facts"] = json.dumps(case.facts)
    group.create_dataset("samples", data=case.samples).attrs["unit"] = "s"
    group.create_dataset("launch", data=case.launch)
    group.create_dataset("calls", data=case.calls)
    parts = group.create_group("parts", track_order=True)
    for name, values in case.parts.items():
        data = parts.create_dataset(name.replace("/", "%2F"), data=values)
        data.attrs["unit"] = "s"
        if "/" in name:  # to HDF5 a group: as in I/O
            data.attrs["name"] = name


def read(path: Path) -> Results:
    """Read a file.

    :raises ResultsError: it cannot be read, or holds something else
    """
    check_h5py()
    import h5py

    if not path.exists():
        raise ResultsError(f"{path}: there is no such file")
    try:
        with h5py.File(path) as file:
            if file.attrs.get("format") != FORMAT:
                raise ResultsError(f"{path}: not a file of `hpccoll bench` or `hpccoll study`")
            if file.attrs["version"] != VERSION:
                raise ResultsError(
                    f"{path}: version {file.attrs['version']} of the format, this hpccoll reads {VERSION}"
                )
            launches = [json.loads(group.attrs["facts"]) for group in _members(file, "launches").values()]
            cases = [_read_case(group) for group in _members(file, "cases").values()]
    except OSError as error:
        raise ResultsError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{path}: a part of it is missing or unreadable: {error}") from None
    for case in cases:
        if problem := wrong(case, len(launches)):
            raise ResultsError(f"{path}: {case.key.what} by {case.key.contestant}: {problem}: the file is damaged")
    return Results(launches, {case.key: case for case in cases})


def wrong(case: Case, launches: int) -> str:
    """Find values that no measurement can give.

    :param launches: the number of launches in the file
    :returns: "" for a plausible case
    """
    samples = case.samples
    if not samples.size:
        return "there are no samples"
    if {len(case.launch), len(case.calls), *map(len, case.parts.values())} != {len(samples)}:
        return f"{samples.size} samples, and not as many launches, calls or parts"
    if not (np.isfinite(samples).all() and (samples >= 0).all()):
        return "a sample is not a time"
    if case.launch.min() < 0 or case.launch.max() >= launches:
        return f"a sample is of launch {case.launch.max()}, and there are {launches}"
    return ""


def _members(group: Any, name: str) -> dict[str, Any]:
    """Return the objects of a group by name, in their order; its values() gives None for one that cannot be read.

    :raises KeyError: one cannot be read
    """
    inside = group[name] if name in group else {}  # noqa: SIM401 - get() hides a group that cannot be read
    return {each: inside[each] for each in inside}


def _read_case(group: Any) -> Case:
    values: dict[str, Any] = {name: group.attrs[name] for name in KEY_FIELDS}
    typed: dict[str, Any] = {name: int(v) if isinstance(v, np.integer) else str(v) for name, v in values.items()}
    key = Key(**typed)
    parts = {str(data.attrs.get("name", name)): data[...] for name, data in _members(group, "parts").items()}
    return Case(
        key, group["samples"][...], group["launch"][...], group["calls"][...], parts, json.loads(group.attrs["facts"])
    )
