# SPDX-License-Identifier: Apache-2.0
# group_plans.pxi - a plan for a group with several dtypes, made of a plan per dtype.

cdef class GroupPlan(Plan):
    """The plans of a group, one per dtype, as one plan."""
    cdef list parts, places

    def wait(self, timeout=None):
        limit = None if timeout is None else time.monotonic() + seconds_of(timeout)
        try:
            results = [part.wait(None if limit is None else max(0.0, limit - time.monotonic())) for part in self.parts]
        finally:
            self.note_active()
        return self.in_order(results)

    def __call__(self):
        self.begin(True)
        return self.wait()

    def test(self):
        return all([part.test() for part in self.parts])

    def free(self):
        if not self.test():
            raise errors.InvalidArgumentError(f"{self.describe()} was started and is not over: wait for it before "
                                              "free()")
        self.release()

    def __repr__(self):
        return f"<hpccoll.Plan: {self.describe()}, {'started' if self.active else 'not started'}>"

    cdef int begin_unready(self, bint waits) except -1:
        try:
            for part in self.parts:
                (<Plan>part).begin(waits)
        finally:
            self.note_active()
        return 0

    cdef int release(self) except -1:
        for part in self.parts:
            (<Plan>part).release()
        return 0

    cdef void note_active(self) noexcept:
        self.active = False
        for part in self.parts:
            self.active = self.active or (<Plan>part).active

    cdef object in_order(self, list results):
        """The results in the order of the group; None where this rank gets no result."""
        if results[0] is None:
            return None
        ordered = [None] * sum([len(place) for place in self.places])
        for place, some in zip(self.places, results, strict=True):
            for i, result in zip(place, some, strict=True):
                ordered[i] = result
        return ordered


def group_plan(list parts, list places):
    """Make one plan of a group's plans; `places`: the indices of their arrays in the group."""
    cdef GroupPlan plan = GroupPlan.__new__(GroupPlan)
    plan.parts, plan.places = parts, places
    plan.number = -1
    plan.set, plan.kind = (<Plan>parts[0]).set, (<Plan>parts[0]).kind
    plan.name = ", ".join([part.name for part in parts])
    return plan
