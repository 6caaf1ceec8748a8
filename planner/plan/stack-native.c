/* SPDX-License-Identifier: Apache-2.0 */
/* This program's own runtime. Its host is written in C and pays for the launch of an op alone. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/plan/stack-private.h"

const PlanFramework plan_framework_native = {
  .newest = {
    .name = "native",
    .id = PLAN_STACK_NATIVE,
    .oldest = 20261101,
    .newest = 20261101,
    .source = "this program's own runtime",
    .vocab_multiple = 1,
    .offers = PLAN_OFFERS_DOCUMENTS | PLAN_OFFERS_FINE_GRAINED | PLAN_OFFERS_MAX_POOL
              | PLAN_OFFERS_PIPELINES | PLAN_OFFERS_AFAB,
    .weights = {
      .outer = PLAN_OUTER_STAYS,
    },
    .optimizer = {
      .host = PLAN_HOST_ALIKE,
    },
    .loss = {
      .pieces = PLAN_PIECES_FUSED,
      .chunks = 1,
    },
    .layer = {
      .kernels = PLAN_KERNELS_OWN,
    },
    .memory = {
      .allocation_bytes = 64,
      .context_bytes = PLAN_STACK_CONTEXT_BYTES,
      .communicator_bytes = PLAN_STACK_COMMUNICATOR_BYTES,
    },
    .host = {
      .runs_ahead = TRUE,
      .cta_policy = PLAN_CTA_ZERO,
      .joins = TRUE,
      .launch_ns = {
        [PLAN_LAUNCH_KERNEL] = 2500,
        [PLAN_LAUNCH_PRODUCT] = 2500,
        [PLAN_LAUNCH_QUANTISED_PRODUCT] = 2500,
        [PLAN_LAUNCH_GRADIENT] = 2500,
        [PLAN_LAUNCH_QUANTISED_GRADIENT] = 2500,
        [PLAN_LAUNCH_ATTENTION] = 2500,
        [PLAN_LAUNCH_COLLECTIVE] = 5000,
      },
    },
  },
};
