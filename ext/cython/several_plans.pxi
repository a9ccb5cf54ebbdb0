# SPDX-License-Identifier: Apache-2.0
# several_plans.pxi - starts several plans, and waits for several plans and Handles.

def start_all(plans, bint waits=False):
    """Start these plans, in their order. `waits`: the caller waits for them next, so this wakes no other thread."""
    for plan in plans:
        (<Plan?>plan).begin(waits)


def wait_all(begun):
    """See hpccoll.wait_all."""
    cdef list results = [], held = list(begun), handles = [one for one in held if not isinstance(one, Plan)]
    failure = None
    if handles:
        finish_all(handles)
    for one in held:
        try:
            results.append((<Plan>one).end(None) if type(one) is Plan else one.wait())
        except errors.HpccollError as error:
            failure = failure or error
    if failure:
        raise failure
    return results
