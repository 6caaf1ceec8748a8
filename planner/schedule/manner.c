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

guint32
plan_manner_keys_of (PlanOpKind kind)
{
  static guint32 keys[PLAN_N_OPS];
  static gsize is_found = 0;
  G_STATIC_ASSERT (PLAN_N_MANNERS <= 32);
  if (g_once_init_enter (&is_found))
    {
      for (PlanOpKind k = 0; k < PLAN_N_OPS; k++)
        for (PlanMannerKey key = 0; key < PLAN_N_MANNERS; key++)
          keys[k] |= (guint32)manners[key].is_of[k] << key;
      g_once_init_leave (&is_found, 1);
    }
  return keys[kind];
}

gboolean
plan_manner_is_of (PlanMannerKey key, PlanOpKind kind)
{
  return manners[key].is_of[kind];
}
