# SPDX-License-Identifier: Apache-2.0
"""Do the stages of the hierarchy overlap? It compares an array in batches of one chunk with one batch of many chunks.

It builds and runs net_chunks.c: two nodes of two ranks, and a link between them that takes no processor time. A batch
of one chunk passes node, network and node one after the other. The floor is the time on the link alone.
"""

import argparse
import statistics
import subprocess

import native
import results

BYTES = 16 << 20
CHUNKS = (128 << 10, 256 << 10, 512 << 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.0], help="of the link, GB/s")
    parser.add_argument("--repetitions", type=int, default=10, help="of each case in each round, at most 1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--out", type=results.file, help="file for the results, as JSON Lines")
    options = parser.parse_args()
    tests = f"-I{native.ROOT / 'tests'}"
    program = native.build(options.compiler, "net_chunks", "transport/*/*.c core/reserve.c core/status.c", tests)
    cases = [(rate, chunk, batch) for rate in options.rates for chunk in CHUNKS for batch in (chunk, BYTES)]
    samples: dict[tuple[float, int, int], list[float]] = {case: [] for case in cases}
    for _ in range(options.rounds):
        for rate, chunk, batch in cases:
            command = [program, BYTES, rate, options.repetitions, chunk, batch]
            done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
            samples[rate, chunk, batch] += map(float, done.stdout.split())
    for rate in options.rates:
        for chunk in CHUNKS:
            serial, many = (1e3 * statistics.median(samples[rate, chunk, batch]) for batch in (chunk, BYTES))
            print(f"{rate:4g} GB/s, 16 MiB, chunks of {chunk >> 10} KiB: one by one {serial:6.1f} ms, "
                  f"overlapping {many:6.1f} ms (x{many / serial:.2f}), floor {BYTES / rate / 1e6:.1f} ms")  # fmt: skip
    if options.out:
        rows = [{"GB/s": r, "chunk": c, "batch": b, "bytes": BYTES, "seconds": s} for (r, c, b), s in samples.items()]
        results.write(options.out, results.facts("net_chunks"), rows)


if __name__ == "__main__":
    main()
