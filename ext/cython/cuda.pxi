# SPDX-License-Identifier: Apache-2.0
# cuda.pxi - finds the GPU driver and NCCL at run time.

cdef dict library_facts(hc_library *library):
    """The file of a library, or why it cannot be used and what the user can do."""
    if library.handle == NULL:
        return {"missing": library.text.decode(errors="replace"), "to do": library.remedy.decode()}
    return {"library": os.fsdecode(library.path)}


def gpu_driver(str named):
    """Facts of the CUDA driver: library, version (12080), devices; or missing, to do.

    `named` is the file to open, "" for the search. This initialises the driver: do not fork afterwards.
    """
    cdef hc_driver driver
    cdef bytes path = os.fsencode(named)
    cdef const char *file = path
    with nogil:
        hc_driver_open(&driver, file)
    facts = library_facts(&driver.library)
    if driver.library.handle != NULL:
        facts |= {"version": driver.version, "devices": [gpu_device(&driver, i) for i in range(driver.devices)]}
    return facts


cdef dict gpu_device(hc_driver *driver, int number):
    """Name and PCI address of a device."""
    cdef char name[128]
    cdef char pci[32]
    cdef int device = 0
    cdef int status = driver.device_get(&device, number)
    if not status:
        status = driver.device_name(name, 128, device)
    if not status:
        status = driver.device_pci(pci, 32, device)
    if status:
        raise errors.TransportError(f"device {number}: {hc_driver_text(driver, status).decode()} ({status})")
    return {"pci": (<bytes>pci).decode().lower(), "name": (<bytes>name).decode()}


def current_device(str named):
    """The number of the device whose context this thread uses; -1: none. Opens no driver."""
    cdef bytes path = os.fsencode(named)
    return hc_driver_current(path)


def nccl(str named, files):
    """Facts of NCCL: library and version ("2.28.9"); or missing, to do.

    `named` is the file to open, "" for the search; `files`: where Python packages may have it.
    """
    cdef hc_nccl table
    cdef char version[32]
    cdef bytes path = os.fsencode(named)
    cdef const char *file = path
    cdef list paths = [os.fsencode(f) for f in files]
    cdef const char **places = <const char **>calloc(len(paths) + 1, sizeof(char *))
    if places == NULL:
        raise MemoryError
    for i, path_of_package in enumerate(paths):
        places[i] = path_of_package
    with nogil:
        hc_nccl_open(&table, file, places)
    free(places)
    facts = library_facts(&table.library)
    if table.library.handle != NULL:
        hc_nccl_version_text(table.version, version, 32)
        facts["version"] = (<bytes>version).decode()
    return facts


def device_way(int operation, int reduction, int dtype):
    """How an operation on device memory runs with NCCL: "nccl", "staged", or "" if it is not defined."""
    return ("", "staged", "nccl")[hc_device_path(operation, reduction, dtype)]
