# SPDX-License-Identifier: Apache-2.0
# knobs.pxi - the knobs of C: their tables for Python, and a function that fills in a struct.

cdef extern from *:
    """
    #include <stddef.h>
    typedef struct hc__knob {
        const char *name, *unit, *doc;
        double initial, low, high;
        int agreed;
        size_t offset, size; /* of the field */
    } hc__knob;
    #define HC__KNOB(type, name, initial, low, high, unit, agreed, doc) \
        {#name, unit, doc, initial, low, high, agreed, offsetof(HC__STRUCT, name), sizeof(type)},
    #define HC__STRUCT hc_engine_config
    static const hc__knob hc__engine_knobs[] = {HC_ENGINE_KNOBS(HC__KNOB) {0}};
    #undef HC__STRUCT
    #define HC__STRUCT hc_loop_config
    static const hc__knob hc__loop_knobs[] = {HC_LOOP_KNOBS(HC__KNOB) {0}};
    #undef HC__STRUCT
    #define HC__STRUCT hc_hierarchy_config
    static const hc__knob hc__hierarchy_knobs[] = {HC_HIERARCHY_KNOBS(HC__KNOB) {0}};
    #undef HC__STRUCT
    """
    ctypedef struct hc__knob:
        const char *name
        const char *unit
        const char *doc
        double initial, low, high
        int agreed
        size_t offset, size
    const hc__knob *hc__engine_knobs
    const hc__knob *hc__loop_knobs
    const hc__knob *hc__hierarchy_knobs


cdef object knob_value(const hc__knob *row, double value):
    """Convert a number of a row to the type of the knob."""
    if row.size == 1:
        return bool(value)
    return value if row.unit == b"s" else int(value)


cdef object bound(double value):
    return int(value) if value == int(value) else value


cdef list knob_rows(const hc__knob *row):
    rows = []
    while row.name is not NULL:
        rows.append({
            "name": row.name.decode(), "default": knob_value(row, row.initial), "doc": row.doc.decode(),
            "unit": row.unit.decode(), "low": bound(row.low), "high": bound(row.high), "agreed": bool(row.agreed)})
        row += 1
    return rows


KNOBS = (*knob_rows(hc__engine_knobs), *knob_rows(hc__loop_knobs), *knob_rows(hc__hierarchy_knobs))


cdef int fill_knobs(const hc__knob *row, void *config, object settings) except -1:
    """Set the fields of the struct `config` that its table names, from a Config."""
    cdef char *field
    while row.name is not NULL:
        value = getattr(settings, row.name.decode())
        field = <char *>config + row.offset
        if row.size == 1:
            (<uint8_t *>field)[0] = value
        elif row.size == 4:
            (<uint32_t *>field)[0] = value
        else:
            (<uint64_t *>field)[0] = nanoseconds(value) if row.unit == b"s" else value
        row += 1
    return 0
