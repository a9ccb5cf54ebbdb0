/* SPDX-License-Identifier: Apache-2.0
 *
 * segment.c - opens the segment of a fake communicator, and knows NCCL's types by our names.
 */
#include "segment.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/hc.h"

segment *fake_segment_open(const char *name) {
    int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0)
        return NULL;
    int sized = ftruncate(file, sizeof(segment)); /* fresh pages are zero, and the size is always this one */
    void *memory = sized < 0 ? MAP_FAILED : mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? NULL : memory;
}

void fake_segment_unlink(const char *name) {
    shm_unlink(name);
}

int fake_dtype(int nccl_dtype) {
    static const int dtypes[] = {HC_INT8,   HC_UINT8,   HC_INT32,   HC_UINT32,  HC_INT64,
                                 HC_UINT64, HC_FLOAT16, HC_FLOAT32, HC_FLOAT64, HC_BFLOAT16};
    return dtypes[nccl_dtype];
}
