/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/manner.h"

#define OF_KIND(id, kind) [PLAN_OP_##kind] = TRUE,

static const struct
{
  const char *name;
  gboolean is_of[PLAN_N_OPS];
} manners[] = {
#define X(id, name, meaning, kinds) \
  [PLAN_MANNER_##id] = { name, { PLAN_EACH (OF_KIND, id, kinds) } },
  PLAN_MANNER_LIST (X)
#undef X
};

const char *
plan_manner_name (PlanMannerKey key)
{
  return manners[key].name;
}

gboolean
plan_manner_is_of (PlanMannerKey key, PlanOpKind kind)
{
  return manners[key].is_of[kind];
}
