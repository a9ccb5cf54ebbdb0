/* SPDX-License-Identifier: Apache-2.0
 *
 * transport.h - the contracts of the transports: ownership, callers, failures.
 *
 * All functions are called by the driver only (one thread at a time, which need not always be the same thread) unless
 * marked [any thread]. None of them ever blocks, spins or sleeps: a function that cannot go on returns, and the driver
 * waits and calls it again. A negative return is an hc_status.
 *
 *     data.h               starts and tests a batch for one process set; hierarchy/ builds it from the next two
 *     node.h               ranks that share memory: chunks of a batch; shm/ (processes, or threads)
 *     net/net.h            point-to-point bytes between ranks; net/mpi.c, net/ucx.c, net/local.c
 *     arithmetic.h         memory, sums and conversions of tensors; kernels/
 *     control/control.h    the edges of the tree: small messages in order, over rings and a net
 *     p2p/p2p.h            messages of the user between two ranks, over control edges, cells and a net
 *
 * Each struct starts with its table of functions; an implementation puts the struct first in its own.
 */
#pragma once

#include "transport/arithmetic.h"
#include "transport/batch.h"
#include "transport/control/control.h"
#include "transport/data.h"
#include "transport/hierarchy/hierarchy.h"
#include "transport/net/net.h"
#include "transport/node.h"
#include "transport/progress.h"
