# SPDX-License-Identifier: Apache-2.0
"""The planted faults of the engine: each leaves out one rule of the protocol, and a test must find it.

A recipe replaces pieces of files by others. Each piece must occur exactly once: otherwise the engine has changed, and
the recipe must be adapted.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    rule: str
    pieces: tuple[Piece, ...]
    programs: int
    """The number of programs in which the fault must be found (measured: a tenth of it or less)."""
    flags: str = ""
    """Options of the simulator for programs in which the rule matters."""


FAULTS = {
    "stale_bits": Fault(
        "T6: a bit for a slot that has changed meanwhile is ignored",
        (Piece("up.c", "    if (s->slots.changed <= tag)\n", "    if (s->slots.changed <= tag || bits)\n"),),
        500,
        "--capacity 2",
    ),
    "no_reraise": Fault(
        "L5: what was raised on a slot that is gone is raised again",
        (
            Piece(
                "raise.c",
                "            raise_one(s, name);\n    }\n    hc__tree_rise",
                "            (void)slot;\n    }\n    hc__tree_rise",
            ),
        ),
        50,
        "--capacity 2",
    ),
    "stale_ready": Fault(
        "T10: the root's ready list forgets the items of slots that an entry frees",
        (
            Piece(
                "slots.c",
                "        row[column] &= ~bit;\n    row[HC__GONE]",
                "        row[column] &= column == HC__OUT ? UINT64_MAX : ~bit;\n    row[HC__GONE]",
            ),
        ),
        1000,
        "--capacity 1",
    ),
    "entry_order": Fault(
        "L2: slots mean what they meant before the entry",
        (
            Piece("log.c", "    n = commit_slots(s, entry, agreed); ", "    n = 0; "),
            Piece(
                "log.c",
                "        n += commit_first(s, &entry->firsts[i], &agreed[n]);\n",
                "        n += commit_first(s, &entry->firsts[i], &agreed[n]);\n"
                "    n += commit_slots(s, entry, &agreed[n]);\n",
            ),
        ),
        50,
        "--capacity 1",
    ),
    "lru_local": Fault(
        "L2: the order of use is a function of the log",
        (
            Piece(
                "slots.c",
                "        slot = s->slots.lru_oldest;\n",
                "        slot = s->set_rank % 2 ? s->slots.lru_newest : s->slots.lru_oldest;\n",
            ),
        ),
        50,
        "--capacity 2",
    ),
    "no_comparison": Fault(
        "T7: signatures are compared",
        (
            Piece(
                "tree.c",
                "while (i < first->nsigs && first->sigs[i] != sig &&",
                "while (i < first->nsigs && i > 0 &&",
            ),
        ),
        50,
    ),
    "no_flush": Fault(
        "R1: a caller that waits raises everything pending",
        (
            Piece(
                "raise.c",
                "        hc__raise_all(s);\n        e->retime = 1;\n",
                "        e->retime = 1;\n",
            ),
        ),
        100,
    ),
    "conflict_unseen": Fault(
        "T7: two slots of one name, raised at a time, are a mismatch",
        (Piece("tree.c", "if (rival != slot && hc__slot_raised(s, rival)) {", "if (0) {"),),
        400,
        "--capacity 200 --fail 0",
    ),
    "conflict_unseen_by_first": Fault(
        "T7: a first announcement and a slot of its name, raised at a time, are a mismatch",
        (
            Piece(
                "tree.c",
                "    if (record->first)\n        hc__tree_conflict",
                "    if (0)\n        hc__tree_conflict",
            ),
            Piece("tree.c", "first->sent || conflicts(s, first)", "first->sent || (0 && conflicts(s, first))"),
        ),
        400,
        "--capacity 200 --fail 0",
    ),
    "conflict_overtaken": Fault(
        "T7: a first announcement waits while a slot of its name is raised",
        (Piece("tree.c", "first->sent || conflicts(s, first)", "first->sent || (conflicts(s, first) && 0)"),),
        40000,
        "--capacity 3 --joins 1 --fail 0",
    ),
    "window": Fault(
        "section 3: the number of raised names is not bounded",
        (
            Piece(
                "raise.c",
                "    for (; name != HC__NONE; name = s->names.at[name].newer)\n        raise_one(s, name);",
                "    for (; name != HC__NONE && name == s->pending.oldest; name = s->names.at[name].newer)\n"
                "        raise_one(s, name);\n    s->pending.unraised = name;",
            ),
            Piece(
                "step.c",
                "    if (s->pending.unraised == HC__NONE || s->joins.joined || s->end.stopped)",
                "    if (s->pending.unraised == HC__NONE || s->joins.joined || s->end.stopped ||\n"
                "        s->pending.unraised != s->pending.oldest)",
            ),
        ),
        50,
    ),
    "fuse_local": Fault(
        "B1: batches are cut by agreed sizes alone",
        (
            Piece(
                "fuse.c",
                ".threshold = s->tune.now.fusion_threshold}",
                ".threshold = s->tune.now.fusion_threshold + 8 * (uint64_t)s->set_rank}",
            ),
        ),
        2000,
    ),
    "tuned_at_the_root": Fault(
        "tuning: new knobs hold on all members after the same entry",
        (Piece("tune.c", "    s->tune.now = *tuning;\n", "    if (s->parent < 0)\n        s->tune.now = *tuning;\n"),),
        2000,
    ),
    "sent_again": Fault(
        "T3: an item goes up once",
        (
            Piece(
                "tree.c",
                "        uint64_t fresh = all & any & ~row[HC__SENT] & ~row[HC__CONFLICT_SENT];",
                "        uint64_t fresh = all & any & ~row[HC__CONFLICT_SENT];",
            ),
        ),
        50,
    ),
    "firm_join": Fault(
        "join: one that has requests pending is void when slots are freed",
        (Piece("join.c", "    s->joins.is_loose = (uint8_t)has_raised(s);", "    s->joins.is_loose = 0;"),),
        10000,
        "--capacity 1 --joins 1",
    ),
    "root_unmarked": Fault(
        "join: what the root of a broadcast had submitted before it joined counts",
        (
            Piece(
                "tree.c",
                "    if (s->slots.at[slot].sig->request.root == s->set_rank)\n        row[HC__ROOTED] |= bit;\n",
                "    (void)row;\n",
            ),
        ),
        50,
        "--joins 1",
    ),
    "not_renumbered": Fault(
        "T11: ranks find out that they know a call without a name by different names",
        (Piece("renumber.c", "        hc__renumber_have(s, 0, s->position);\n", "        s->end.stopped |= 0;\n"),),
        1000,
        "--unnamed 1",
    ),
    "renumber_not_void": Fault(
        "T11: an agreement on a call without a name voids RENUMBER",
        (Piece("log.c", "        hc__renumber_void(s);\n", ""),),
        500,
        "--unnamed 1",
    ),
    "stale_renumber": Fault(
        "T11: RENUMBER from before such an agreement is void",
        (Piece("renumber.c", " || tag < s->pending.unnamed.settled)", ")"),),
        500,
        "--unnamed 1",
    ),
    "stale_number": Fault(
        "L0: a first announcement from before it is void",
        (Piece("renumber.c", "return s->pending.unnamed.ordered &&", "return 0 &&"),),
        5000,
        "--unnamed 1",
    ),
    "join_before_call": Fault(
        "join: it comes after the rank's calls without a name",
        (Piece("join.c", "s->pending.unnamed.requests > s->pending.unnamed.later", "0"),),
        20000,
        "--unnamed 1 --joins 1 --fail 0 --ranks 2-3",
    ),
    "join_before_refusal": Fault(
        "join: it comes after the rank's refusals of calls without a name",
        (Piece("join.c", "s->pending.unnamed.refusals > 0", "0"),),
        80000,
        "--unnamed 1 --joins 1 --fail 0 --lazy 0 --stall 0 --ranks 3-6",
    ),
}
