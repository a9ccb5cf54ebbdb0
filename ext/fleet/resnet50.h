/* SPDX-License-Identifier: Apache-2.0
 *
 * resnet50.h - names and shapes of ResNet-50's 161 gradients, in the order of the forward pass.
 */
#pragma once

#include "fleet/fleet.h"

enum { RESNET50_GRADIENTS = 161 };

typedef struct resnet50 {
    char names[RESNET50_GRADIENTS][48];
    int64_t dims[RESNET50_GRADIENTS][4];
    hc_tensor tensors[RESNET50_GRADIENTS];
    fleet_request requests[RESNET50_GRADIENTS];
} resnet50;

/* He et al. 2016, table 1 (50 layers, 1000 classes): 25,557,032 parameters. Returns their number. The requests point
 * into the model, so it must not move. */
int64_t resnet50_gradients(resnet50 *);
