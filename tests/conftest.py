# SPDX-License-Identifier: Apache-2.0
"""The common part of all tests: C test programs, MPI jobs whose rank 0 alone prints, and skips that fail on CI.

Under a launcher (`mpirun -np 3 pytest --only-mpi`) every rank runs the same tests. Tests without the mpi mark, and
those that need more ranks, are left out of that run, not skipped: another run of `make test` has them.
"""

import contextlib
import fcntl
import functools
import getpass
import hashlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT / "tests"))
pytest_plugins = ["run_limits", "run_records", "fake_gpus"]

# Thousands of processes import the package. Without bytecode files each of them would compile it, and each worker would
# rewrite the assertions of all tests. Containers often set this variable to stay small.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Several workers and their jobs share the cores; threads of NumPy's and PyTorch's pools would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell without job control starts a background command with SIGINT ignored, and so would all jobs of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

C_FLAGS = (
    "-std=c11 -O1 -g1 -fPIC -D_GNU_SOURCE= -pthread -Iext -Itests -Itests/core/simulator "
    "-Wall -Wextra -Wpedantic -Werror -Wno-overlength-strings"
).split()
FOR_THE_LINKER = ("-l", "-Wl,", "-shared", "-static", "/")  # so begin flags that no object depends on


# ---- C programs ---------------------------------------------------------------------------------

SANITIZERS: list[str] = []  # of --sanitize, on the command line of every program
UNDEFINED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")  # of programs without other sanitizers
PATIENCE_WITH_SANITIZERS = 5  # times the limits of a test: ThreadSanitizer slows a program down that much


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sanitize", metavar="address,undefined", help="compile the tests' C programs with sanitizers")


def compile_c(*sources: str, flags: tuple[str, ...] = (), compiler: str = "gcc", name: str = "") -> Path:
    """Compile C sources (paths or globs from the project's root) to a program, or a library with -shared.

    A source may be followed by its own flags: "x.c -DMANY=1". Programs share their objects.
    """
    flags = all_flags(flags)
    objects = [made for source in sources for made in compile_objects(source, flags, compiler).values()]
    return kept(name or Path(sources[0].split()[0]).stem, [compiler, *flags, *map(str, objects), "-lm"])


def all_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the flags of all programs, and these.

    A program ends at undefined behaviour, unless it has other sanitizers. Libraries that another program loads, and
    static programs for other processors, are without.
    """
    chosen = SANITIZERS or (() if {"-shared", "-static"} & {*flags} else UNDEFINED)
    return (*C_FLAGS, *([] if "-fsanitize" in " ".join(flags) else chosen), *flags)


def compile_objects(source: str, flags: tuple[str, ...], compiler: str = "gcc") -> dict[str, Path]:
    """Compile the files of `source` (see compile_c); return their objects, by the path of the file from the root."""
    pattern, *own = source.split()
    if not (files := sorted(glob(pattern, root_dir=ROOT, recursive=True))):
        raise FileNotFoundError(f"no such C source: {pattern}")
    command = [compiler, *(flag for flag in flags if not flag.startswith(FOR_THE_LINKER)), "-c", *own]
    return {
        file: kept(f"{Path(file).stem}.o", [*command, file], headers(), (ROOT / file).read_bytes()) for file in files
    }


@functools.cache
def headers() -> bytes:
    """Return the text of all headers, which any source may include."""
    patterns = (f"{folder}/**/*.{end}" for folder in ("ext", "tests") for end in ("h", "cu", "inc"))
    files = [file for pattern in (*patterns, "ext/**/mpi.c") for file in sorted(ROOT.glob(pattern))]
    return b"".join(file.read_bytes() for file in files)


def kept(name: str, command: list[str], *inputs: bytes) -> Path:
    """Return the command's output file, kept under build/tests by the hash of the command and its inputs."""
    digest = hashlib.sha256(repr(command).encode())
    for data in inputs:
        digest.update(data)
    made = ROOT / "build" / "tests" / f"{digest.hexdigest()[:16]}-{name}"
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as turn:  # another worker may be making it
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not made.exists():
            with uncounted():
                compile_to(made, command)
    return made


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Stop the clock of pytest-timeout while a compiler or another run of the tests takes time."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)


@pytest.fixture(scope="session", name="uncounted")
def uncounted_part() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """`with uncounted():` a part of a test that its limit does not count."""
    return uncounted


def compile_to(program: Path, command: list[str]) -> None:
    fresh = program.with_suffix(".new")
    built = subprocess.run([*command, "-o", str(fresh)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    if built.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{built.stdout}{built.stderr}", pytrace=False)
    fresh.replace(program)


@pytest.fixture(scope="session")
def build_c() -> Callable[..., Path]:
    """`build_c("tests/core/x.c", "ext/core/*.c", flags=("-O3",), compiler="clang")`: see compile_c."""
    return compile_c


@pytest.fixture(scope="session")
def objects_of() -> Callable[..., dict[str, Path]]:
    """`objects_of("ext/core/*.c")`: by path, the objects of build_c's programs; `plain=True`: without sanitizers."""
    return lambda source, plain=False: compile_objects(source, tuple(C_FLAGS) if plain else all_flags(()))


@pytest.fixture(scope="session")
def sources_of() -> Callable[..., list[str]]:
    """`sources_of("core", "rendezvous/exchange.c")`: C sources of these folders and files of ext, from the root."""

    def sources(*parts: str) -> list[str]:
        patterns = (f"ext/{part}" if part.endswith(".c") else f"ext/{part}/**/*.c" for part in parts)
        found = (file for pattern in patterns for file in glob(pattern, root_dir=ROOT, recursive=True))
        return sorted(file for file in found if not file.endswith("/mpi.c"))  # that each family of MPI includes

    return sources


@pytest.fixture(scope="session")
def starving() -> tuple[str, ...]:
    """The flags of a program in which allocations fail (starving.h)."""
    allocators = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "strdup")
    return tuple(f"-Wl,--wrap={name}" for name in allocators)


@pytest.fixture(scope="session")
def run_c() -> Callable[..., str]:
    """`run_c(program, *arguments, timeout=100, env={})`: its output, shown if it fails."""

    def run(program: Path, *arguments: object, timeout: float = 100, env: dict[str, str] | None = None) -> str:
        command = [str(program), *map(str, arguments)]
        timeout *= PATIENCE_WITH_SANITIZERS if SANITIZERS else 1
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **(env or {})}, timeout=timeout, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}", pytrace=False)
        return done.stdout

    return run


# ---- MPI jobs --------------------------------------------------------------------------------------


def under_mpi(config: pytest.Config) -> bool:
    return bool(config.getoption("--with-mpi") or config.getoption("--only-mpi"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To save seconds, let ranks ignore files without parallel tests, and other processes files with only those."""
    if ROOT / "tests" not in collection_path.parents:
        return None
    if not under_mpi(config):
        return True if collection_path.name.startswith("test_") and is_parallel(collection_path) else None
    if collection_path.is_dir():
        return None if any(map(may_be_parallel, collection_path.rglob("test_*.py"))) else True
    return None if not collection_path.name.startswith("test_") or may_be_parallel(collection_path) else True


def is_parallel(file: Path) -> bool:
    """Return whether all tests of a file have the mpi mark."""
    return file.is_file() and bool(re.search(r"^pytestmark = .*\bpytest\.mark\.mpi\b", file.read_text(), re.MULTILINE))


@functools.cache
def may_be_parallel(file: Path) -> bool:
    """Return if a test file has the mpi mark, or names a fixture of a conftest.py above whose parameters have it."""
    text = file.read_text()
    return "pytest.mark.mpi" in text or any(re.search(rf"\b{name}\b", text) for name in parallel_fixtures(file.parent))


@functools.cache
def parallel_fixtures(folder: Path) -> tuple[str, ...]:
    """List the fixtures whose parameters have the mpi mark, of the conftest.py files from a folder up to tests."""
    if folder == ROOT / "tests":
        return ()
    conftest = folder / "conftest.py"
    fixtures = re.split(r"^@pytest\.fixture", conftest.read_text(), flags=re.MULTILINE)[1:] if conftest.exists() else []
    names = [re.findall(r"^def (\w+)", text, re.MULTILINE)[0] for text in fixtures if "pytest.mark.mpi" in text]
    return (*names, *parallel_fixtures(folder.parent))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other runs: outside of a job MPI tests, inside all others and those of larger jobs."""
    size = 0
    if under_mpi(config):
        from mpi4py import MPI

        size = MPI.COMM_WORLD.size

    def belongs(item: pytest.Item) -> bool:
        mark = item.get_closest_marker("mpi")
        return (mark is not None and mark.kwargs.get("min_size", 1) <= size) if size else mark is None

    left_out = [item for item in items if not belongs(item)]
    items[:] = sorted(filter(belongs, items), key=lambda item: scope_of(item.nodeid) not in SCOPES.values())
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if SANITIZERS:
        be_patient(config, items)


def be_patient(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("timeout")
        limit = float(mark.args[0] if mark else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(PATIENCE_WITH_SANITIZERS * limit), append=False)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let ranks other than 0 print their report only if a test failed there."""
    if names := config.getoption("--sanitize"):
        SANITIZERS.extend((f"-fsanitize={names}", "-fno-sanitize-recover=all"))
    if "HPCCOLL_TRACE_DIR" not in os.environ:  # of Worlds that tests break
        folder = os.environ["HPCCOLL_TRACE_DIR"] = tempfile.mkdtemp(prefix="hpccoll-traces-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if "PRTE_MCA_prte_local_tmpdir_base" not in os.environ:
        # For tests that kill an mpirun: see openmpi.own_session_folder for the effect of its files on later ones.
        sessions = tempfile.mkdtemp(prefix="hpccoll-sessions-")
        os.environ.update(PRTE_MCA_prte_local_tmpdir_base=sessions)
        config.add_cleanup(lambda: shutil.rmtree(sessions, ignore_errors=True))
    os.environ.setdefault("OMPI_MCA_btl", "^ofi")  # of Open MPI 5, it sleeps for 1 s in every MPI_Init
    os.environ.setdefault("OMPI_MCA_mtl", "^ofi")  # a tenth of the processor time of a job that only starts
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads spin for 50 ms of CPU in each process
    config.addinivalue_line("markers", "gpu: needs a GPU; the only reason for a skip on CI")
    config.addinivalue_line("markers", "slow: longer than a few seconds; `make test-all` runs it")
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if under_mpi(config):
        from mpi4py import MPI

        temporary_files_apart(MPI.COMM_WORLD.rank)
        if MPI.COMM_WORLD.rank > 0 and reporter:
            reporter._tw._file = io.StringIO()


def temporary_files_apart(rank: int) -> None:
    """Give each rank a separate root for tmp_path: pytest removes old folders at the end of a session, and sessions
    that end at the same time would disturb each other, which is a warning and so an error."""
    root = Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}-rank-{rank}")
    root.mkdir(mode=0o700, exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(root)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> Iterator[None]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    quiet = reporter and isinstance(reporter._tw._file, io.StringIO)
    if quiet and (reporter.stats.get("failed") or reporter.stats.get("error")):
        sys.stderr.write(reporter._tw._file.getvalue())
    yield


# ---- workers ---------------------------------------------------------------------------------------

SCOPES = {"tests/slurm/": "slurm", "tests/netns/": "hosts", "tests/tools/doctor/test_hosts.py": "hosts"}
"""Slurm, and hosts with changing links: one worker runs all tests of such a scope, and begins with it, because they
take longest and mostly wait."""


def scope_of(nodeid: str) -> str:
    """Return the scope that one worker runs as a whole: one of the above, or a file, whose fixtures are made once."""
    return next((scope for start, scope in SCOPES.items() if nodeid.startswith(start)), nodeid.split("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Let `-n 3` distribute scopes."""
    from xdist.scheduler import LoadScopeScheduling

    class Scopes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Scopes(config, log)


# ---- what the system must have -----------------------------------------------------------------------


@functools.cache
def packages() -> dict[str, str]:
    """Return the Debian package of each program that tests need from the system."""
    lines = (ROOT / "tests" / "packages").read_text().splitlines()
    return dict(line.split() for line in lines if not line.startswith("#"))  # type: ignore[misc]


@functools.cache
def may_make_hosts() -> bool:
    """Return whether this process is root and may make namespaces, which a container can forbid."""
    command = ["unshare", "--mount", "--uts", "--net", "true"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


def lacking(*needed: str) -> str:
    """Return which of these programs, or of the rights of "root", this machine lacks, with the remedy; "": none."""
    lines = []
    if absent := [name for name in needed if name != "root" and not shutil.which(name)]:
        install = " ".join(dict.fromkeys(packages()[name] for name in absent))
        lines.append(f"no {', '.join(absent)} on PATH: apt-get install {install}")
    if "root" in needed and not may_make_hosts():
        lines.append("hosts of their own need root, and in a container --privileged")
    return "; ".join(lines)


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    """`needs("sshd", "root")`: skip the test, with the remedy, where the machine lacks one of these."""

    def skip_without(*needed: str) -> None:
        if why := lacking(*needed):
            raise pytest.skip.Exception(why, _use_item_location=True)  # the test is named, not this line

    return skip_without


# ---- skips -----------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Make a skip a failure if CI is set, except for tests that need a GPU."""
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("gpu")
    if skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
