#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the operations of simulation codes beside every installed MPI (peers.sh), in about 20 minutes on an idle
# machine: small calls, conjugate gradients, messages and halos on 1, 2 and 4 ranks and on 2 hosts, HPCG's pattern and
# the heat equation.
#     sh benchmarks/simulation.sh [PYTHON [ROUNDS]]
# ROUNDS: turns of each library in simulation.py. The hosts are network namespaces, which need root.
set -eu
cd "$(dirname "$0")/.."
python=$(command -v "${1:-python}")
rounds=${2:-41}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
export OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 # 4 ranks on fewer cores; it costs nothing where there are enough

# Runs hpccoll and one MPI in the same processes: the MPI of the environment, or of a folder (mpi4py loads either).
in_turn() { # ranks, folder of the MPI or nothing, parts
    ranks=$1 mpi=$2
    shift 2
    if [ -z "$mpi" ]; then
        "$python" -m hpccoll run -np "$ranks" --timeout 400 "$python" benchmarks/simulation.py --rounds "$rounds" --only "$@"
    elif [ -d "$mpi" ]; then
        PATH=$PWD/$mpi/bin:$PATH MPI4PY_LIBMPI=$PWD/$mpi/lib/libmpi.so.12 timeout 400 mpirun -np "$ranks" \
            "$python" benchmarks/simulation.py --rounds "$rounds" --only "$@"
    fi
}

# Runs the same on two hosts, over TCP, with the environment's MPI. If there are more ranks than cores, ranks that wait
# share cores with ranks that work, and yield; neither library can see that from a host.
on_hosts() { # ranks per host, command
    ranks=$1
    shift
    wait=auto
    [ $((2 * ranks)) -le "$(nproc)" ] || wait=yield
    cluster=tests/netns/cluster.sh
    $cluster up 2
    trap '$cluster down; rm -r "$folder"' EXIT
    $cluster shape 1gbit
    eval "$($cluster env)"
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,sm OMPI_MCA_btl_tcp_if_include=eth0
    HPCCOLL_WAIT=$wait $cluster exec h1 "$python" -m hpccoll run -H h1:$ranks,h2:$ranks --timeout 400 "$@"
    $cluster down
}

for ranks in 1 2 4; do
    for mpi in "" .venv-mpich .venv-impi; do
        in_turn $ranks "$mpi" cg messages halos
    done
done
"$python" benchmarks/run.py small --ranks 1 2 4 --libraries hpccoll mpi --rounds 2 --seconds 0.3
if [ "$(id -u)" = 0 ]; then
    "$python" benchmarks/hosts.py --question small --hosts 2 --rounds 1
    for ranks in 1 2; do
        on_hosts $ranks "$python" benchmarks/simulation.py --rounds "$rounds" --only cg messages
    done
else
    echo "2 hosts left out: network namespaces need root"
fi

bin=$(dirname "$(command -v "$python")")
PATH=$bin:$PATH
mpicc -O2 -Iext/api examples/hpcg/on_hpccoll.c examples/hpcg/on_mpi.c examples/hpcg/hpcg.c -Lhpccoll/lib \
    -Wl,-rpath,"$PWD/hpccoll/lib" -lhpccoll -lm -o "$folder/hpcg"
for ranks in 1 2 4; do
    for points in 8 16 32; do
        echo "HPCG's pattern, $ranks ranks, $points^3 points per rank"
        "$python" -m hpccoll run -np $ranks --nodes 1 --timeout 120 "$folder/hpcg" $points 50 9
    done
done

command -v gfortran > /dev/null || { echo "the heat equation left out: no gfortran"; exit 0; }
interface=$(gfortran -print-file-name=include)
gcc -O2 -Iext/api -I"$interface" -c bindings/fortran/hpccoll_fortran.c -o "$folder/binding.o"
mpicc -O2 -Iext/api -I"$interface" -c tests/capi/mpi_f08.c -o "$folder/mpi.o"
for source in bindings/fortran/hpccoll.f90 tests/capi/mpi_f08.f90; do
    gfortran -O2 -Wno-c-binding-type -J"$folder" -c "$source" -o "$folder/$(basename "$source").o"
done
for name in heat heat_mpi; do
    # shellcheck disable=SC2046 # words
    gfortran -O2 -I"$folder" "$folder"/binding.o "$folder"/mpi.o "$folder"/*.f90.o examples/fortran/$name.f90 \
        $(mpicc --showme:link) -Lhpccoll/lib -Wl,-rpath,"$PWD/hpccoll/lib" -lhpccoll -o "$folder/$name"
done
for ranks in 1 2 4; do
    for round in 1 2 3; do
        for name in heat heat_mpi; do
            "$python" -m hpccoll run -np $ranks --nodes 1 --timeout 120 "$folder/$name" 256 4000 > "$folder/line"
            echo "$name, $ranks ranks, round $round: $(tail -n 1 "$folder/line")"
        done
    done
done
[ "$(id -u)" = 0 ] || exit 0
for ranks in 1 2; do
    for name in heat heat_mpi heat heat_mpi; do
        on_hosts $ranks "$folder/$name" 256 4000 > "$folder/line"
        echo "$name, 2 hosts of $ranks ranks: $(tail -n 1 "$folder/line")"
    done
done
