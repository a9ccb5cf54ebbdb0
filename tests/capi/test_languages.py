# SPDX-License-Identifier: Apache-2.0
"""The Fortran module, the C++ header, and the examples, each beside the same program on bare MPI."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def modules(needs, tmp_path_factory) -> Path:
    """The folder where the modules are when they are compiled."""
    needs("gfortran")
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def fortran(mpicc, modules, compiled) -> Callable[[str], Path]:
    """`fortran("examples/fortran/heat.f90")`: the program, with MPI's module or what stands in for it."""
    folder = modules
    objects = []
    sources = [("gcc", "bindings/fortran/hpccoll_fortran.c"), ("gfortran", "bindings/fortran/hpccoll.f90")]
    sources += [(mpicc, "tests/capi/mpi_f08.c"), ("gfortran", "tests/capi/mpi_f08.f90")]
    linking = subprocess.run([mpicc, "--showme:link"], capture_output=True, text=True, check=True).stdout.split()
    binding = subprocess.run(["gfortran", "-print-file-name=include"], capture_output=True, text=True, check=True)
    for compiler, source in sources:
        objects.append(folder / f"{source.replace('/', '-')}.o")
        flags = ["-Wall", "-Wextra", "-Wpedantic"]
        if compiler == "gfortran":
            flags = ["-std=f2018", "-Wno-c-binding-type", f"-J{folder}"]
        command = [compiler, "-O1", "-g", "-Werror", *flags, "-Iext/api", f"-I{binding.stdout.strip()}", "-c", source]
        done = subprocess.run([*command, "-o", objects[-1]], cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr

    def compile_one(source: str, *more: object) -> Path:
        return compiled("gfortran", "-O1", "-g", "-fcheck=all", f"-I{folder}", *objects, *more, source, *linking)

    return compile_one


def on_device(fake_cuda: Path) -> dict[str, object]:
    return {"HPCCOLL_CUDA_LIBRARY": fake_cuda, "HPCCOLL_DEVICE_MODE": "staged", "FAKE_CUDA_ORDER": "lazy"}


def line(output: str, words: str) -> str:
    return next(line for line in output.splitlines() if words in line)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [pytest.param(1, 1, marks=pytest.mark.slow), (3, 2)])
def test_fortran_procedures(fortran, job, ranks: int, nodes: int) -> None:
    assert "fine\n" in job(ranks, fortran("tests/capi/procedures.f90"), nodes=nodes)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "nodes"), [pytest.param(1, 1, marks=pytest.mark.slow), (4, 2)])
def test_halos_in_fortran(fortran, job, ranks: int, nodes: int) -> None:
    assert "fine\n" in job(ranks, fortran("tests/capi/halo.f90"), nodes=nodes)


@pytest.mark.timeout(200)
def test_an_error_without_ierror_ends_the_program(fortran, job, tmp_path) -> None:
    source = tmp_path / "wrong.f90"
    source.write_text(
        "program wrong\n use hpccoll\n type(hpccoll_world) :: world\n real :: x(6)\n x = 1\n"
        ' call hpccoll_world_alone(world, "verbose=0")\n'
        " call hpccoll_allreduce(x(1:6:2), HPCCOLL_SUM, world)\nend program\n"
    )
    assert "hpccoll_allreduce: x is not contiguous" in job(1, fortran(str(source)), status=1)


@pytest.mark.timeout(200)
def test_fortran_without_mpi(fortran, job, tmp_path) -> None:
    source = tmp_path / "launched.f90"
    source.write_text(
        "program launched\n use hpccoll\n type(hpccoll_world) :: world\n real :: x(2)\n"
        ' call hpccoll_world_launched(world, "verbose=0")\n x = hpccoll_rank(world)\n'
        " call hpccoll_allreduce(x, HPCCOLL_SUM, world)\n"
        ' if (hpccoll_rank(world) == 0) print "(i0, a, 2f4.1)", hpccoll_size(world), " ranks", x\n'
        " call hpccoll_world_free(world)\nend program\n"
    )
    assert "3 ranks 3.0 3.0" in job(3, fortran(str(source)), launcher="ssh")


@pytest.mark.timeout(200)
def test_fortran_in_an_elastic_job(fortran, elastic_job) -> None:
    output = elastic_job(fortran("tests/capi/elastic.f90"))
    assert output.count("fine\n") == 2 and output.count("lost rank 1 of 3\n") == 2, output


@pytest.mark.timeout(200)
def test_fortran_on_a_device(fortran, job, fake_cuda: Path) -> None:
    program = fortran("tests/capi/device.f90", "-Wl,--no-as-needed", fake_cuda, f"-Wl,-rpath,{fake_cuda.parent}")
    assert "fine\n" in job(2, program, launcher="ssh", **on_device(fake_cuda))


@pytest.mark.timeout(200)
def test_cpp_without_mpi(needs, compiled, job, tmp_path) -> None:
    needs("g++")
    source = tmp_path / "launched.cpp"
    source.write_text(
        "#include <hpccoll.hpp>\n#include <cstdio>\nint main() {\n    auto world = hpccoll::World::from_launcher();\n"
        "    double sum = world.allreduce(double(world.rank()));\n"
        '    if (world.rank() == 0)\n        std::printf("%d ranks %g\\n", world.size(), sum);\n}\n'
    )
    program = compiled("g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", source)
    assert "3 ranks 3\n" in job(3, program, launcher="ssh")


@pytest.mark.timeout(200)
def test_cpp_on_a_device(needs, compiled, job, fake_cuda: Path) -> None:
    needs("g++")
    driver = ("-Wl,--no-as-needed", fake_cuda, f"-Wl,-rpath,{fake_cuda.parent}")
    program = compiled("g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", *driver, "tests/capi/device.cpp")
    assert "fine\n" in job(2, program, launcher="ssh", **on_device(fake_cuda))


@pytest.mark.parametrize(
    ("standard", "program", "words"),
    [
        ("c++17", "", "hpccoll.hpp needs C++20: compile with -std=c++20"),  # that of g++ 12 unless told
        ("gnu++20", "auto of = hpccoll::dtype_of<__int128>();\n", "an integer of more than 64 bits does not move"),
        (
            "c++20",
            "void f(hpccoll::World &w, float x, hpccoll::Op<double> &op) { w.allreduce(std::span(&x, 1), op); }\n",
            "an Op is for spans of its own type",
        ),
    ],
    ids=["older", "integer", "op"],
)
def test_what_the_header_does_not_take_is_one_error(needs, tmp_path, standard: str, program: str, words: str) -> None:
    needs("g++")
    source = tmp_path / "refused.cpp"
    source.write_text(f"#include <hpccoll.hpp>\n{program}")
    command = ["g++", f"-std={standard}", "-fsyntax-only", f"-I{ROOT}/hpccoll/include", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    first = next((said for said in done.stderr.splitlines() if "error" in said), "")
    assert done.returncode != 0 and words in first


@pytest.mark.timeout(200)
def test_what_a_request_still_writes_is_asynchronous(fortran, modules, tmp_path) -> None:
    """A section with a stride that is asynchronous is no argument of such a dummy (Fortran 2018, 15.5.2.4).

    The compiler would give a copy of it, which ends when the call returns: before the counts are known.
    """
    source = tmp_path / "section.f90"
    lines = "program p\n use hpccoll\n use, intrinsic :: iso_c_binding\n type(hpccoll_world) :: w\n"
    lines += " type(hpccoll_request) :: r\n integer(c_int64_t), asynchronous :: n(8)\n real :: x(1), y(4)\n"
    commands = []
    for counts in ("n(1:4)", "n(1:8:2)"):
        source.write_text(f"{lines} call hpccoll_allgather(x, y, w, {counts}, request=r)\nend program\n")
        command = ["gfortran", "-fsyntax-only", f"-I{modules}", source]
        commands.append(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False))
    assert commands[0].returncode == 0, commands[0].stderr
    assert "not simply contiguous and both are ASYNCHRONOUS" in commands[1].stderr


@pytest.mark.timeout(200)
def test_heat(fortran, job) -> None:
    with_hpccoll, bare = (fortran(f"examples/fortran/{name}.f90") for name in ("heat", "heat_mpi"))
    for ranks, nodes in ((1, 1), (3, 2)):
        found = line(job(ranks, with_hpccoll, 64, 100, nodes=nodes), "64^2 points")
        assert found == line(job(ranks, bare, 64, 100), "64^2 points")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_conjugate_gradients(mpicc, needs, compiled, job) -> None:
    needs("g++")
    compiler = shutil.which("mpicxx", path=str(Path(mpicc).parent))
    program = compiled(compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "examples/cpp/cg.cpp")
    expected = line(job(1, program, 64, "mpi"), "64^2 points")
    for ranks, nodes in ((1, 1), (3, 2)):
        assert line(job(ranks, program, 64, nodes=nodes), "64^2 points") == expected


@pytest.mark.timeout(200)
def test_the_pattern_of_hpcg(mpicc, compiled, job) -> None:
    """hpccoll and MPI get the same residual; a sum of more than two ranks may be rounded in another order."""
    sources = [f"examples/hpcg/{name}.c" for name in ("on_hpccoll", "on_mpi", "hpcg")]
    program = compiled(mpicc, "-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *sources, "-lm")
    for ranks, nodes in ((1, 1), (2, 1), (4, 2)):
        output = job(ranks, program, 6, 9, 1, nodes=nodes)
        found = [words for words in map(str.split, output.splitlines()) if "residual" in words]
        assert len(found) == 3, output
        sums = [[float(words[words.index(word) + 1]) for word in ("residual", "sum")] for words in found]
        assert sums[0] == sums[1] == sums[2] if ranks < 3 else sums[0] == pytest.approx(sums[1], rel=1e-6), output
        assert sums[0][1] == pytest.approx(ranks * 6**3, rel=1e-4), output


@pytest.mark.timeout(200)
@pytest.mark.parametrize("source", ["values", "halo"])
def test_cpp_header(mpicc, compiled, job, source: str) -> None:
    compiler = shutil.which("mpicxx", path=str(Path(mpicc).parent))
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wold-style-cast"]
    program = compiled(compiler, "-std=c++20", "-O1", *strict, "-Werror", f"tests/capi/{source}.cpp")
    assert "fine\n" in job(3, program, nodes=2)
