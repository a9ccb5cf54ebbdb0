# SPDX-License-Identifier: Apache-2.0
"""Each fault, planted in the reports of a healthy cluster, is found, named, and nothing else is."""

from dataclasses import asdict
from typing import Any

import pytest
from reports import found, interface, link, only, report, says

from hpccoll.checks.finding import ERROR, NOTE, WARNING, grouped
from hpccoll.checks.survey import Survey
from hpccoll.detect import Place
from hpccoll.tools.doctor import examine, network, rendering

PAIR = [report(0, 0), report(1, 1)]


def test_a_healthy_cluster_has_no_findings() -> None:
    assert found([report(rank, rank // 16) for rank in range(64)], links=[link(0, 1, 1e4)]) == []


# ---- build, MPI, launcher ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("btl", "pml", "ranks", "local", "wrong"),
    [
        ("self", "", 2, 2, True),
        ("self,sm", "ob1", 4, 2, True),
        ("self,sm", "", 2, 2, False),
        ("self,tcp", "", 4, 2, False),
        ("self", "ucx", 2, 2, False),
        ("self", "", 1, 1, False),
        ("^openib", "", 4, 2, False),
    ],
)
def test_components_that_connect_nobody(btl: str, pml: str, ranks: int, local: int, wrong: bool) -> None:
    facts = {"btl": btl, "pml": pml, "ranks": ranks, "local": local}
    reports = [report(r, r // local, transports=facts) for r in range(ranks)]
    if wrong:
        says(only(reports), ERROR, f"OMPI_MCA_btl={btl} is set", "Unreachable", "unset OMPI_MCA_btl")
    else:
        assert found(reports) == ([] if ranks > 1 else found([report(0)]))


@pytest.mark.parametrize("library", ["UCX 1.13.0 (/opt/libucp.so.0)", ""])
def test_ranks_with_another_ucx_or_none(library: str) -> None:
    reports = [report(0, 0), report(1, 1, ucx={"library": library, "lacks": "" if library else "none is there"})]
    seen = f"rank 0: UCX 1.20.1; rank 1: {library.partition(' (')[0] or 'none'}"
    says(only(reports), WARNING, f"UCX differs between ranks ({seen})", "without MPI", "one environment")


# ---- load -------------------------------------------------------------------------------------------

QUIET = {
    "busy": 0.01, "steal": 0.0, "processes": [], "at a time": 0.0, "average": 0.5, "online": 64, "stopped": 0.0,
}  # fmt: skip


def watched(rank: int, **seen: Any) -> Any:
    one = report(rank)
    one.facts["load"] = QUIET | seen
    return one


def test_cores_that_others_use() -> None:
    assert found([watched(0), watched(1)]) == []
    busy = watched(1, **{"busy": 0.9, "processes": ["spin (pid 7)"], "at a time": 8.0})
    says(
        only([watched(0), busy]),
        WARNING,
        "h1: other processes use 90% of 4-7 (cpus of rank 1); 2 of them are runnable per core: spin (pid 7)",
    )


def test_time_that_is_taken_away() -> None:
    says(only([watched(0), watched(1, steal=0.12)]), WARNING, "the hypervisor took 12% of the time")
    says(only([watched(0), watched(1, stopped=0.3)]), WARNING, "was stopped for 0.3 s", "docker run --cpus")
    says(only([watched(0, average=200.0), watched(1)]), NOTE, "the load average is 200 on 64 cpus")


def inside(**more: Any) -> dict[str, Any]:
    usual = {"small": 4e-6, "mean": 6e-6, "worst": 2e-4, "large": 9e-3, "copy": 3e-3}
    return {"node": "h1", "ranks": 2, "bytes": 16 << 20, **usual, **more}


def test_times_inside_a_node_are_held_against_the_machine() -> None:
    """As it was found: 4 ms for 8 bytes were nothing wrong."""
    pair = [report(0), report(1)]
    assert found(pair, inside=[inside()]) == []
    says(
        only(pair, inside=[inside(small=4e-3, mean=4e-3, worst=9e-3)]),
        WARNING,
        "h1: an allreduce of 8 B between 2 ranks takes 4 ms as a rule, 4 ms on average and 9 ms at worst",
        "24 us is enough",
    )
    says(only(pair, inside=[inside(mean=4e-4, worst=9e-2)]), WARNING, "4 us as a rule, 400 us on average")
    says(only(pair, inside=[inside(large=0.1)]), WARNING, "16 MiB takes 100 ms, and a copy of it", "3 ms")


def test_no_cable_is_suspected_between_hosts_that_share_a_machine() -> None:
    slow = [link(a, b, 100 if 2 in (a, b) else 1000) for a, b in ((0, 1), (0, 2), (1, 2))]
    apart = [report(r, r) for r in range(3)]
    assert any("cable" in one.remedy for one in found(apart, links=slow))
    shared = [report(r, r, names={"network": f"boot {r}"}) for r in range(3)]
    findings = found(shared, links=slow)
    assert findings and not any("cable and port" in one.remedy for one in findings), findings
    assert any("These hosts share a machine" in one.remedy for one in findings)


def test_differing_installations() -> None:
    says(
        only([report(0), report(1, build={"versions": {"hpccoll": "2"}})]),
        ERROR,
        "rank 0",
        "rank 1",
        "'hpccoll': '2'",
    )


def test_differing_processors_are_a_note() -> None:
    says(only([report(0), report(1, build={"kernels": "avx512"})]), NOTE, "rank 1: avx512")


def test_a_variable_that_is_no_knob() -> None:
    typo = "HPCCOLL_FUSION_TRESHOLD is no knob"
    says(only([report(0), report(1, build={"knobs": typo})]), ERROR, f"rank 1: {typo}", "init() refuses it")


def test_two_mpi_libraries() -> None:
    says(only([report(0), report(1, mpi={"library": "MPICH 5"})]), ERROR, "rank 0: Open MPI", "rank 1: MPICH 5")
    ours = {
        "library": "MPICH 5 (x)",
        "mpi4py was built for": "another MPI: Status is 24 and not 20",
        "to do": "build mpi4py with it",
    }
    says(only([report(0, mpi={"ours": ours}), report(1)]), ERROR, "MPICH 5 (x)", "24 and not 20", "Build mpi4py")


def test_a_thread_level_has_its_price() -> None:
    says(
        only([report(0, mpi={"thread level": "SERIALIZED"}), report(1)]),
        WARNING,
        "SERIALIZED",
        "World.progress()",
    )


HUNG = {
    "stage": "MPI_Init_thread",
    "seconds": 30.0,
    "status": None,
    "stack": ["poll", "PMIx_Init"],
    "waits for": [],
}


def hung(rank: int, node: int, **more: Any) -> Any:
    one = report(rank, node)
    one.facts["mpi"] = HUNG | more
    return one


def test_a_hang_names_the_stage_the_ranks_and_the_place() -> None:
    finding = only([hung(0, 0), hung(1, 1)])
    says(
        finding,
        ERROR,
        "MPI_Init_thread has not returned after 30 s on ranks 0, 1 (h1, h2)",
        "poll < PMIx_Init",
        "--mpi=list",
    )


def test_a_hang_on_a_decoy_names_the_decoy() -> None:
    docker = interface("docker0", "172.17.0.1", 16)
    reports = [hung(r, r, **{"waits for": ["172.17.0.1:1024"]}) for r in range(2)]
    for one in reports:
        one.facts["addresses"]["interfaces"].append(docker)
    first = found(reports)[0]
    says(first, ERROR, "without an answer to 172.17.0.1:1024", "if_exclude=lo,docker0")


def test_an_end_in_mpi_init_is_told_from_a_hang() -> None:
    says(
        only([hung(0, 0, status=1), report(1)]),
        ERROR,
        "MPI_Init_thread ended the process (status 1) on rank 0",
    )
    says(only([hung(0, 0, status=-11), report(1)]), ERROR, "ended the process (signal 11)")
    says(only([hung(0, 0, error="code 17"), report(1)]), ERROR, "MPI_Init_thread failed (code 17) on rank 0")


def test_ranks_that_did_not_report() -> None:
    says(only([report(0), report(3)], size=5), ERROR, "ranks 1, 2, 4 of 5")


def test_processes_that_mpi_believes_to_be_alone() -> None:
    alone = {
        "seen": "srun started 4 tasks but MPI says that this process is alone",
        "remedy": "Use another protocol",
    }
    says(only([report(0, launcher={"if alone": alone})]), ERROR, "srun started 4 tasks", "another protocol")


def test_one_number_twice() -> None:
    def placed(rank: int, output: int) -> Any:
        return report(rank, launcher={"place": asdict(Place("srun", "SLURM_PROCID", output, 3))})

    assert found([placed(rank, rank) for rank in range(3)]) == []
    says(
        only([placed(0, 0), placed(1, 1), placed(2, 1)]),
        ERROR,
        "ranks 1 and 2 of MPI are both number 1 for srun",
    )
    says(
        only([placed(0, 0), placed(1, 1)]),
        ERROR,
        "srun started 3 tasks",
        "MPI has 2 ranks",
        "Start the job with one",
    )


def test_a_single_process_says_what_it_cannot_know() -> None:
    says(only([report(0)]), NOTE, "nothing was looked at between nodes", "doctor -H h1,h2")


# ---- memory, limits, clocks -----------------------------------------------------------------------------


def test_shared_memory() -> None:
    says(
        only([report(0, memory={"free": 1 << 16, "total": 1 << 26}), report(1)]),
        ERROR,
        "64 KiB free of 64 MiB",
        "--shm-size",
    )
    findings = found([report(r, memory={"free": 60 << 20, "total": 1 << 30}) for r in range(16)])
    assert [f.check for f in findings] == ["memory"]


def test_limits() -> None:
    rdma = {"rdma": True, "locked memory": 8 << 20}
    says(only([report(0, limits=rdma), report(1)]), ERROR, "8 MiB (ulimit -l)")
    assert found([report(0, limits={"locked memory": 8 << 20}), report(1)]) == []
    says(only([report(0, limits={"open files": 256}), report(1)]), WARNING, "256 open files")
    says(only([report(0, limits={"stack": 65536}), report(1)]), WARNING, "64 KiB (ulimit -s)")


def test_clocks() -> None:
    assert found(PAIR, links=[link(0, 1, 1000, skew=0.4)]) == []
    says(only(PAIR, links=[link(0, 1, 1000, skew=-2.5)]), WARNING, "h2 is 2.5 s behind that of h1")
    says(only(PAIR, links=[link(0, 1, 1000, skew=400.0)]), ERROR, "munge")


# ---- placement, rails, GPUs -----------------------------------------------------------------------------


def bound(rank: int, cpus: str, **more: Any) -> Any:
    return report(rank, placement={"cpus": cpus, "numa": [0], "threads": 1, **more})


def test_two_ranks_on_one_core_while_others_are_free() -> None:
    finding = only([bound(0, "0"), bound(1, "0"), bound(2, "1")])
    says(finding, WARNING, "ranks 0, 1 are bound to cpu 0 while no rank is on cpu 2-63")


def test_oversubscription_may_be_intended_and_only_the_doctor_reports_it() -> None:
    reports = [bound(r, "0-1", online="0-1", **{"numa nodes": 1}) for r in range(4)]
    says(only(reports), WARNING, "4 ranks on 2 cpus")


def test_threads() -> None:
    says(only([bound(0, "0", threads=8), bound(1, "1-8")]), WARNING, "rank 0: OMP_NUM_THREADS=8 on 1 cpus (0)")
    eight = [bound(r, "0-15", threads=4, online="0-15") for r in range(8)]
    says(only(eight), WARNING, "8 ranks with 32 OpenMP threads on 16 cpus")
    unset = [bound(r, "0-15", threads=None, online="0-15") for r in range(8)]
    says(only(unset), WARNING, "OMP_NUM_THREADS is not set", "up to 128 threads on 16 cpus")


def test_a_container_with_less_time_than_ranks() -> None:
    says(
        only([report(r, placement={"quota": 1.5}) for r in range(2)]),
        WARNING,
        "1.5 cores' worth of time to 2 ranks",
    )


def test_ranks_that_wander_between_numa_nodes() -> None:
    reports = [bound(0, "0-31", numa=[0, 1]), bound(1, "32-63", numa=[0, 1])]
    says(only(reports), WARNING, "ranks 0, 1 may run on 2 NUMA nodes")


def rail(name: str, numa: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "pci": "", "path": f"/sys/devices/pci000{numa}:00/nic", "numa": numa, "kind": "rdma", "up": True,
        "rate": 1e11, **more,
    }  # fmt: skip


def test_rails() -> None:
    two = {"devices": [rail("mlx5_0:1", 0), rail("mlx5_1:1", 1)]}
    reports = [report(rank, 0, rails=two) for rank in range(16)]
    assert found(reports) == []
    rows = examine.table(Survey(reports))
    assert [row["rail"] for row in rows] == ["mlx5_0:1"] * 8 + ["mlx5_1:1"] * 8
    says(only(reports[:8]), WARNING, "no rank is bound near mlx5_1:1")
    one_down = report(16, 1, rails={"devices": [rail("mlx5_0:1", 0), rail("mlx5_1:1", 1, up=False)]})
    assert any("h2 has 1 of the 2 network devices" in f.seen for f in found([*reports, one_down]))


def gpu(pci: str, numa: int = 0) -> dict[str, Any]:
    return {"pci": pci, "name": "H200", "numa": numa, "path": f"/sys/devices/pci000{numa}:00/gpu"}


def test_the_rail_of_a_rank_is_the_one_that_shares_most_bridges_with_its_gpu() -> None:
    """Two devices on one socket, each below a PCI switch with a GPU; the ranks see one GPU each."""
    switch = "/sys/devices/pci0000:00/switch{}/{}"
    nics = {"devices": [rail(f"mlx5_{i}:1", 0, path=switch.format(i, "nic")) for i in range(2)]}
    reports = [
        report(
            r,
            rails=nics,
            gpus={"present": ["a", "b"], "visible": [gpu("a") | {"path": switch.format(1 - r, "gpu")}]},
        )
        for r in range(2)
    ]
    assert [row["rail"] for row in examine.table(Survey(reports))] == ["mlx5_1:1", "mlx5_0:1"]


def test_gpus() -> None:
    hidden = {"present": ["0:1", "0:2"], "hidden by": {"CUDA_VISIBLE_DEVICES": ""}, "why none": ""}
    says(
        only([report(0, gpus=hidden), report(1)]),
        ERROR,
        "h1 has 2 GPUs, all hidden from rank 0",
        "CUDA_VISIBLE_DEVICES=''",
    )
    same = {"present": ["0:1", "0:2"], "visible": [gpu("0:1")]}
    note, shared = found([report(0, gpus=same), report(1, gpus=same)])
    says(note, NOTE, "GPUs on h1: whether MPI can use their memory was not tried", "doctor --gpu-aware")
    says(shared, WARNING, "ranks 0, 1 see the same one GPU (0:1) of 2")
    far = {"present": ["0:1"], "visible": [gpu("0:1", 1)]}
    _, distant = found([report(0, gpus=far), report(1)])
    says(distant, WARNING, "rank 0: the cores are on another NUMA node", "0:1 is on 1")


# ---- network --------------------------------------------------------------------------------------------


def triangle(**special: float) -> list[dict[str, Any]]:
    return [link(a, b, special.get(f"l{a}{b}", 1000)) for a, b in ((0, 1), (0, 2), (1, 2))]


def test_a_slow_node() -> None:
    reports = [report(r, r) for r in range(3)]
    assert found(reports, links=triangle()) == []
    says(
        only(reports, links=triangle(l02=90, l12=100)),
        WARNING,
        "slow node h3: 100 Mbit/s at best",
        "others reach 1 Gbit/s",
    )


def test_a_slow_link() -> None:
    reports = [report(r, r) for r in range(3)]
    says(
        only(reports, links=triangle(l02=100)),
        WARNING,
        "slow link h1 - h3: 100 Mbit/s",
        "both nodes are well",
    )


def test_a_suspect_that_is_fast_alone_is_none() -> None:
    reports = [report(r, r) for r in range(3)]
    assert found(reports, links=[*triangle(l02=100), link(0, 2, 990)]) == []


def test_late_links_are_slow_too() -> None:
    reports = [report(r, r) for r in range(3)]
    links = [*triangle()[:2], link(1, 2, 1000, latency=1e-3)]
    says(only(reports, links=links), WARNING, "slow link h2 - h3: 1 Gbit/s, 1 ms, measured")


def test_one_direction() -> None:
    says(only(PAIR, links=[link(0, 1, 1000, back=100)]), WARNING, "h2 to h1: 100 Mbit/s, back 1 Gbit/s")


def test_a_device_that_is_not_used() -> None:
    fast = {"devices": [rail("mlx5_0:1", 0)]}
    findings = found([report(r, r, rails=fast) for r in range(2)], links=[link(0, 1, 9500)])
    says(findings[0], WARNING, "h1: 9.5 Gbit/s measured; mlx5_0:1 declares 100 Gbit/s")


def test_hpccoll_itself_fails() -> None:
    says(
        only(PAIR, inside=[{"node": "h1", "ranks": 2, "bytes": 1, "error": "no room"}]),
        ERROR,
        "h1 (2 ranks): no room",
    )


def test_a_node_that_is_slow_inside() -> None:
    inside = [
        {"node": f"h{i}", "ranks": 4, "bytes": 1, "large": t, "small": 1.0} for i, t in enumerate((0.01, 0.011, 0.03))
    ]
    says(only([report(r, r) for r in range(3)], inside=inside), WARNING, "h2 (30 ms)", "(11 ms)")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("bandwidth=10Gbit", 1.25e9),
        ("bandwidth=100mbit/s", 12.5e6),
        ("bandwidth=1.5GB/s", 1.5e9),
        ("latency=20us", 2e-5),
    ],
)
def test_requirements_are_read(text: str, value: float) -> None:
    assert network.requirement(text) == (text.split("=")[0], pytest.approx(value))


@pytest.mark.parametrize("text", ["bandwidth", "bandwidth=fast", "latency=3Gbit", "speed=1Gbit", "bandwidth=10"])
def test_requirements_that_make_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match="is not bandwidth=NUMBER"):
        network.requirement(text)


def test_a_link_below_the_requirement_is_an_error() -> None:
    survey = Survey(PAIR, links=[link(0, 1, 900, latency=30e-6)])
    assert network.judge_required(survey, {"bandwidth": 1e8, "latency": 1e-4}) == []
    slow, late = network.judge_required(survey, {"bandwidth": 1.25e9, "latency": 2e-5})
    says(slow, ERROR, "h1 - h2: 900 Mbit/s, less than 10 Gbit/s")
    says(late, ERROR, "h1 - h2: 30 us, more than 20 us")
    says(
        network.judge_required(Survey(PAIR), {"bandwidth": 1.0})[0],
        ERROR,
        "no link between nodes was measured",
    )


# ---- the whole report -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (6.48e-6, "6.48 us"),
        (999.4e-6, "999 us"),
        (999.6e-6, "1 ms"),
        (4.85e-3, "4.85 ms"),
        (0.0381, "38.1 ms"),
        (90, "90 s"),
    ],
)
def test_times_are_written_without_powers(seconds: float, written: str) -> None:
    assert network.duration(seconds) == written


def test_findings_of_many_nodes_become_one() -> None:
    reports = [report(r, r, limits={"open files": 16}) for r in range(50)]
    merged = grouped(f for f in found(reports, size=64) if f.check == "limits")
    assert len(merged) == 1
    assert merged[0].seen.endswith("and 47 more like these")


def test_what_orders_the_nodes_is_said() -> None:
    """Kinds 2 and 0: Slurm's switches, host names."""
    along = [report(r, r, **{"node order": {"address": [2, f"s{r // 2}/h{r + 1}"]}}) for r in range(4)]
    options = {"measure": False, "interfaces": [], "required": {}, "training": None}
    lines = rendering.render(examine.summarize(Survey(along, 4), options)).splitlines()
    assert lines[1] == "nodes ordered by Slurm's topology (2 switches)"
    found = only([*along[:3], report(3, 3)])
    says(found, WARNING, "ordered by host names: Slurm's topology on ranks 0-2; host names on rank 3")


def test_the_text_has_every_finding_with_its_reason_and_remedy() -> None:
    options = {
        "measure": True,
        "interfaces": [],
        "required": {},
        "training": {"name": "x", "bytes": 1e8, "compute": 0.1, "nodes": None, "overlap": 0.5},
    }
    survey = Survey([report(0, 0), report(1, 1, limits={"open files": 16})], 2, [], [link(0, 1, 1000)])
    printed = rendering.render(examine.summarize(survey, options))
    for part in (
        "h1 (1), h2 (1)",
        "h1 - h2  10 us    1 Gbit/s  1 Gbit/s",
        "warning: limits: h2: 16 open",
        "do: `ulimit",
        "1 warning",
    ):
        assert part in printed
    assert "The network will not do: x on 2 nodes" in " ".join(printed.split())
    assert printed.splitlines()[-1].endswith("1 warning; the network will not do")
