# SPDX-License-Identifier: Apache-2.0
"""The table of extensions, and the library of C beside them. All that is static stands in pyproject.toml."""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

from Cython.Build import cythonize
from Cython.Build.Dependencies import default_create_extension
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.install_lib import install_lib

HERE = f"-ffile-prefix-map={Path.cwd()}=."  # the same source gives the same bytes in every folder
CFLAGS = ["-O3", "-g1", "-std=c11", "-fvisibility=hidden", "-ffp-contract=off", "-pthread", HERE]
LOOPS = 1000  # for scheduling alone: a byte of a kernel takes about as long as so many bytes of other sources
CALLED_ONCE = ["-O1"]  # of Cython's files that no operation goes through; compiling them takes half as long
CFLAGS += [
    "-Wno-sign-compare",
    "-Wno-unused-function",
]  # of what Cython writes; tests are strict with what we write
LDFLAGS = ["-pthread", "-Wl,--as-needed", "-lm", "-lrt", "-ldl", HERE]
LDFLAGS += ["-Wl,--build-id=none"]  # it depends on the debug sections, which name folders and which a wheel leaves out
LTO = ["-flto=auto"]  # a call from one of our C files into another then costs what a call within one does
ONE_OBJECT = ["-r", "-flinker-output=nolto-rel"]
DEFINED = [("_GNU_SOURCE", "")]
INCLUDES = ["ext"]

INCLUDED = "ext/transport/net/mpi.c"  # by the file of each family of MPI libraries
SHARED = ["setup.py", INCLUDED, *sorted(glob("ext/**/*.h", recursive=True) + glob("ext/cython/*.p*"))]
MPI_SOURCES = sorted(glob("ext/transport/net/mpi_*.c"))
UCX_SOURCES = [*sorted(glob("ext/transport/net/ucx*.c")), "ext/rendezvous/ucx_start.c"]
CUDA_SOURCES = [*sorted(glob("ext/cuda/**/*.c", recursive=True)), *("ext/core/status.c", "ext/core/reserve.c")]
CORE = ("core", "transport", "loop", "world", "rendezvous", "gate")
CORE_SOURCES = sorted(
    {f for layer in CORE for f in glob(f"ext/{layer}/**/*.c", recursive=True)} - {*MPI_SOURCES, *UCX_SOURCES, INCLUDED}
)

KERNELS = [f"ext/transport/kernels/{instructions}.c" for instructions in ("avx2", "avx512", "portable")]
FLEET_SOURCES = sorted(glob("ext/core/*.c") + glob("ext/fleet/*.c"))
XLA_SOURCES = sorted(glob("ext/xla/*.c"))
TENSORFLOW_SOURCES = [*sorted(glob("ext/tensorflow/*.c")), "ext/core/status.c"]  # sizes of dtypes

EXTENSIONS = {
    "_core": CORE_SOURCES,
    "_cuda": CUDA_SOURCES,
    "_fleet": FLEET_SOURCES,
    "_mpi": MPI_SOURCES,
    "_tensorflow": TENSORFLOW_SOURCES,
    "_ucx": [*UCX_SOURCES, "ext/rendezvous/exchange.c", "ext/core/status.c"],
    "_xla": XLA_SOURCES,
}

LIBRARY_SOURCES = [  # beside the core
    *MPI_SOURCES,
    *UCX_SOURCES,
    *sorted(glob("ext/cuda/**/*.c", recursive=True)),
    *sorted(glob("ext/api/*.c")),
]
LIBRARY = "libhpccoll.so.1"
SYMBOLS = "ext/api/libhpccoll.map"
LIBRARY_FILES = {  # of the package, which is the library's prefix: hpccoll/lib, hpccoll/include
    "include": ["ext/api/hpccoll.h", *sorted(glob("bindings/fortran/*") + glob("bindings/cpp/*"))],
    "lib/pkgconfig": ["bindings/package/hpccoll.pc"],
    "lib/cmake/hpccoll": sorted(glob("bindings/package/*.cmake")),
}


class build(build_ext):
    """build_ext that waits for another build of the same tree, and makes only what changed.

    All sources are compiled side by side. The core, which `_core` and the library of C share, is optimized across its
    files and linked once, into one object.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        where = f"{self.plat_name}-{sys.implementation.cache_tag}"
        # Kept for an editable build, too, which would otherwise compile and link everything each time.
        self.build_temp = f"build/temp.{where}"
        if self.editable_mode:
            self.build_lib = f"build/lib.{where}"

    def run(self) -> None:
        Path("build").mkdir(exist_ok=True)
        with open("build/lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().run()
            if self.inplace:
                for folder in ("lib", "include"):
                    shutil.copytree(Path(self.build_lib, "hpccoll", folder), f"hpccoll/{folder}", dirs_exist_ok=True)

    def build_extensions(self) -> None:
        """Compile everything, then link."""
        self.keep_rpath_out()
        # For all extensions or none: they share objects, and only a linker that was told so reads those of clang.
        self.lto = LTO if self.knows_lto() else []
        self.compile_only_what_changed()
        objects = self.compile_side_by_side([*(f for e in self.extensions for f in e.sources), *LIBRARY_SOURCES])
        core = self.link_core([objects[source] for source in CORE_SOURCES if source not in KERNELS])
        core += [objects[source] for source in KERNELS]
        for made in self.extensions:
            made.extra_link_args += self.lto
            if made.name == "hpccoll._core":
                made.sources = [source for source in made.sources if source not in CORE_SOURCES]
                made.extra_objects = core
                made.depends += core
        super().build_extensions()
        self.link_library([*core, *(objects[source] for source in LIBRARY_SOURCES)])

    def keep_rpath_out(self) -> None:
        """Keep the folders of this Python out of the extensions' RUNPATH: other machines have others."""
        own = shlex.split(f"{sysconfig.get_config_var('LDSHARED') or ''} {sysconfig.get_config_var('LDFLAGS') or ''}")
        ways = {word for word in own if word.startswith("-Wl,-rpath")}
        self.compiler.linker_so = [word for word in self.compiler.linker_so if word not in ways]

    def knows_lto(self) -> bool:
        """Can the compiler optimize across files into one object? gcc can."""
        with TemporaryDirectory() as folder:
            source, compiled, whole = (Path(folder, f"one.{kind}") for kind in ("c", "o", "whole.o"))
            source.write_text("int one(void) { return 1; }\n")
            compiling = [*self.compiler.compiler_so, *LTO, "-c", source, "-o", compiled]
            linking = [*self.compiler.compiler_so, *LTO, *ONE_OBJECT, compiled, "-o", whole]
            return all(subprocess.run(step, capture_output=True).returncode == 0 for step in (compiling, linking))

    def compile_only_what_changed(self) -> None:
        """Compile what is older than a file that it was made of. See `flags_of` for what has LTO."""
        compile_one = self.compiler._compile

        def compile_changed(obj: str, source: str, ext: str, cc: list[str], options: list[str], pp: list[str]) -> None:
            made_of = Path(obj).with_suffix(".d")
            if not is_newer(obj, made_of):
                compile_one(obj, source, ext, cc, [*options, *self.flags_of(source), "-MMD", "-MF", str(made_of)], pp)

        self.compiler._compile = compile_changed

    def flags_of(self, source: str) -> list[str]:
        """Give our C files LTO, but not the kernels, which are called by pointers, nor the large files of Cython."""
        if source.startswith("ext/"):
            return [] if source in KERNELS else self.lto
        return [] if Path(source).stem == "_core" else CALLED_ONCE

    def compile_side_by_side(self, sources: list[str]) -> dict[str, str]:
        """Compile each source once, what takes longest first; the object of each."""

        def compiled(source: str) -> str:
            (made,) = self.compiler.compile([source], self.build_temp, DEFINED, INCLUDES, extra_postargs=CFLAGS)
            return made

        def seconds(source: str) -> float:
            return os.path.getsize(source) * (LOOPS if source in KERNELS else 1)

        ordered = sorted(set(sources), key=seconds, reverse=True)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as compilers:
            return dict(zip(ordered, compilers.map(compiled, ordered), strict=True))

    def link_core(self, objects: list[str]) -> list[str]:
        """Make one object of the core's, optimized as a whole; without LTO they stay as they are."""
        if not self.lto:
            return objects
        core = Path(self.build_temp, "core.o")
        link_newer([*self.compiler.compiler_so, *CFLAGS, *self.lto, *ONE_OBJECT, *objects], core, objects)
        return [str(core)]

    def link_library(self, objects: list[str]) -> None:
        """Link libhpccoll.so of the objects that the extensions have, and put what its users need beside it."""
        prefix = Path(self.build_lib, "hpccoll")
        library = prefix / "lib" / LIBRARY
        library.parent.mkdir(parents=True, exist_ok=True)
        naming = [f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={SYMBOLS}"]
        lto = [*self.lto, "-flto-partition=one"] if self.lto else []  # several give statics the names that core.o has
        link_newer([*self.compiler.linker_so, *lto, *objects, *LDFLAGS, *naming], library, [*objects, SYMBOLS])
        # Where a wheel goes there are no links: for the linker a file that names the library is as good.
        (library.parent / "libhpccoll.so").write_text(f"INPUT({LIBRARY})\n")
        for folder, files in LIBRARY_FILES.items():
            (prefix / folder).mkdir(parents=True, exist_ok=True)
            for file in files:
                shutil.copy2(file, prefix / folder)


class install(install_lib):
    """install_lib that leaves the lines of sources out of what a wheel packs: they are more than half of its bytes."""

    def install(self) -> list[str]:
        installed = super().install()
        for file in installed:
            if Path(file).read_bytes()[:4] == b"\x7fELF":
                subprocess.run([os.environ.get("STRIP", "strip"), "--strip-debug", file], check=True)
        return installed


def is_newer(made: str, made_of: Path) -> bool:
    """Is it newer than this file and the files that the compiler has written into it as a rule of make?"""
    try:
        rule = made_of.read_text().replace("\\\n", " ")
        parts = [made_of, "setup.py", *rule.partition(":")[2].split()]
        return os.path.getmtime(made) >= max(os.path.getmtime(part) for part in parts)
    except FileNotFoundError:
        return False


def link_newer(command: list[str], made: Path, parts: list[str]) -> None:
    """Link where a part is newer than what was made of it. A link that is ended leaves no half of a file."""
    if not made.exists() or any(os.path.getmtime(part) >= made.stat().st_mtime for part in parts):
        fresh = made.with_suffix(".new")
        subprocess.run([*command, "-o", fresh], check=True)
        fresh.replace(made)


def extension(name: str, sources: list[str]) -> Extension:
    return Extension(
        f"hpccoll.{name}",
        sources=[f"ext/cython/{name}.pyx", *sources],
        depends=SHARED.copy(),
        include_dirs=INCLUDES.copy(),
        define_macros=DEFINED.copy(),
        extra_compile_args=CFLAGS.copy(),
        extra_link_args=LDFLAGS.copy(),
    )


def plain(template: Extension, given: dict[str, object]) -> tuple[Extension, None]:
    """Let Cython write no list of this tree's files and flags into C, which would move the numbers of its lines."""
    return default_create_extension(template, given)[0], None


setup(
    ext_modules=cythonize(
        [extension(name, sources) for name, sources in EXTENSIONS.items()],
        include_path=["ext/cython"],
        build_dir="build/cython",
        create_extension=plain,
        compiler_directives={
            "language_level": 3,
            "freethreading_compatible": False,
            "auto_pickle": False,  # Python refuses to pickle the classes anyway, and methods that say so are much code
        },
    ),
    cmdclass={"build_ext": build, "install_lib": install},
)
