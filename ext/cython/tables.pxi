# SPDX-License-Identifier: Apache-2.0
# tables.pxi - the C tables for Python, and the conversion of statuses to exceptions.

cdef extern from "api/hpccoll.h":
    const char *HPCCOLL_VERSION

cdef extern from "world/words.h":
    enum: HC_WORDS_OWN, HC_WORDS_HOROVOD
    ctypedef struct hc_words:
        const char *array
        const char *an_array
        const char *x
        const char *out
        const char *prescale
        const char *postscale
    const hc_words *hc_words_table

DTYPES = tuple([hc_dtype_name(i).decode() for i in range(HC_DTYPE_COUNT)])
OPERATIONS = tuple([hc_operation_name(i).decode() for i in range(HC_OPERATION_COUNT)])
cdef int TRAITS[HC_OPERATION_COUNT]  # all traits of each operation in one word
for _code in range(HC_OPERATION_COUNT):
    TRAITS[_code] = sum([1 << bit for bit in range(16) if hc_operation_has(_code, 1 << bit)])
P2P_OPERATIONS = ("send", "receive")  # HC_SEND, HC_RECEIVE, which follow the operations
REDUCTIONS = tuple([hc_reduction_name(i).decode() for i in range(HC_REDUCTION_COUNT)])
WIRE_SAME = HC_WIRE_SAME
HOROVOD_WORDS = HC_WORDS_HOROVOD
MAX_SETS = HC_MAX_SETS  # limit of a rank's process sets at a time, with the World
VERSION = HPCCOLL_VERSION.decode()
WIRE_VERSION = HC__WIRE_VERSION  # of the messages between ranks: equal on all of them


def _statuses():
    """(code, name, text, exception) of every status; 0 is OK."""
    rows, code = [], 0
    while hc_status_name(code) != b"?":
        rows.append((
            code, hc_status_name(code).decode(), hc_status_text(code).decode(), hc_status_exception(code).decode()))
        code -= 1
    return tuple(rows)


STATUSES = _statuses()
cdef dict EXCEPTIONS = {row[0]: getattr(errors, row[3]) for row in STATUSES if row[0]}


cpdef object error_of(int status, str text):
    """The exception of a status, to raise."""
    return EXCEPTIONS.get(status, errors.HpccollError)(text or hc_status_text(status).decode())


cdef int check(int status, str text="") except -1:
    if status < 0:
        raise error_of(status, text)
    return 0


def reduction_defined(int reduction, int dtype):
    """Whether `reduction` of `dtype` (codes of the tables) is defined."""
    return bool(hc_reduction_defined(reduction, dtype))


def kernels():
    """The vector code in use: "avx512", "avx2" or "portable"."""
    return hc_kernels_name().decode()


def cpu_quota(str root, str own):
    """The CPU quota in cores of the strictest control group (hc_cores_quota); 0.0: no limit."""
    cdef uint64_t group
    return hc_cores_quota(os.fsencode(root), os.fsencode(own), &group) / 1000.0


def select_kernels(str name):
    """Use the vector code of this name, or "auto"; before the first World is made."""
    check(hc_kernels_select(name.encode()), f"simd {name!r}: this CPU or this build lacks it")
