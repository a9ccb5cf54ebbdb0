# SPDX-License-Identifier: Apache-2.0
"""The engine's planted faults: each leaves out one rule of the protocol, and a test must notice.

A recipe replaces pieces of files by others. A piece that is not there exactly once is an error: then the engine
has changed, and the recipe must follow it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    rule: str
    pieces: tuple[tuple[str, str, str], ...]
    """File, what stands there, what is put there."""
    programs: int
    """How many programs may run until it is noticed (seen: a tenth of it or less)."""
    flags: str = ""


FAULTS = {
    "stale_bits": Fault(
        "T6: a bit for a slot that has changed meanwhile is ignored",
        (
            (
                "up.c",
                "    if (s->changed <= tag)\n        return bits;\n",
                "    if (s->changed <= tag || bits)\n        return bits;\n",
            ),
        ),
        50, "--capacity 2 --stop 0",
    ),
    "no_hold": Fault(
        "T5: a message from a position not reached here waits",
        (
            (
                "up.c",
                "    if (m.tag > s->q || is_held(s, source, NULL))",
                "    if (s->q == UINT64_MAX || is_held(s, source, NULL))",
            ),
        ),
        1500, "--sequenced 1 --stop 0",
    ),
    "no_reraise": Fault(
        "L5: what was raised on a slot that is gone is raised again",
        (
            (
                "raise.c",
                "            raise_one(s, name);\n    }\n    hc__tree_rise",
                "            (void)slot;\n    }\n    hc__tree_rise",
            ),
        ),
        50, "--capacity 2 --stop 0",
    ),
    "stale_ready": Fault(
        "T10: the root's ready list forgets the items of slots that an entry frees",
        (
            (
                "slots.c",
                "        row[column] &= ~bit;\n    row[HC__GONE]",
                "        row[column] &= column == HC__OUT ? UINT64_MAX : ~bit;\n    row[HC__GONE]",
            ),
        ),
        1000, "--capacity 1 --sequenced 1 --stop 0 --ranks 2-6",
    ),
    "entry_order": Fault(
        "L2: slots mean what they meant before the entry",
        (
            (
                "log.c",
                "    n = commit_slots(s, entry, agreed);          /* L2: before L3, which may rename a slot */\n    for (uint32_t i = 0; i < entry->nfirsts; i++) /* L3 */\n        n += commit_first(s, &entry->firsts[i], &agreed[n]);\n",
                "    n = 0;\n    for (uint32_t i = 0; i < entry->nfirsts; i++)\n        n += commit_first(s, &entry->firsts[i], &agreed[n]);\n    n += commit_slots(s, entry, &agreed[n]);\n",
            ),
        ),
        50, "--capacity 1 --stop 0",
    ),
    "lru_local": Fault(
        "the least recently used slot is a function of the log",
        (
            (
                "slots.c",
                "        slot = s->lru_oldest;\n",
                "        slot = s->set_rank % 2 ? s->lru_newest : s->lru_oldest;\n",
            ),
        ),
        50, "--capacity 2 --stop 0",
    ),
    "no_comparison": Fault(
        "T7: signatures are compared",
        (
            (
                "tree.c",
                "while (i < first->nsigs && first->sigs[i] != sig && !hc__sig_is(first->sigs[i], sig->bytes, sig->nbytes))",
                "while (i < first->nsigs && i > 0)",
            ),
        ),
        50, "--stop 0",
    ),
    "window": Fault(
        "section 3: the number of raised names is not bounded",
        (
            (
                "raise.c",
                "    for (; name != HC__NONE; name = s->names.at[name].newer)\n        raise_one(s, name);",
                "    for (; name != HC__NONE && name == s->oldest; name = s->names.at[name].newer)\n        raise_one(s, name);\n    s->unraised = name;",
            ),
            (
                "step.c",
                "    if (s->unraised == HC__NONE || s->joined || s->stopped)",
                "    if (s->unraised == HC__NONE || s->joined || s->stopped || s->unraised != s->oldest)",
            ),
        ),
        50, "--stop 0",
    ),
    "fuse_local": Fault(
        "B1: batches are cut by agreed sizes alone",
        (
            (
                "fuse.c",
                ".threshold = s->engine->config.fusion_threshold}",
                ".threshold = s->engine->config.fusion_threshold + 8 * (uint64_t)s->set_rank}",
            ),
        ),
        50, "--stop 0",
    ),
    "no_sequencer": Fault(
        "B5: entries of sets that share a stream have one order",
        (
            (
                "commit.c",
                "    if (s->sequenced && s->id != 0)",
                "    if (s->sequenced && s->id == UINT32_MAX)",
            ),
        ),
        50, "--sequenced 1 --stop 0",
    ),
    "sent_again": Fault(
        "T3: an item goes up once",
        (
            (
                "tree.c",
                "        uint64_t fresh = all & any & ~row[HC__SENT];",
                "        uint64_t fresh = all & any;",
            ),
        ),
        50, "--stop 0",
    ),
}  # fmt: skip
