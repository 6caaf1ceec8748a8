/* assert_same: fails unless two models are alike, key by key. */
#pragma once
#include "planner/model/model.h"

#include <check.h>

static inline void
assert_same (const PlanModel *a, const PlanModel *b, int seed)
{
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  ck_assert_str_eq (a->family, b->family);
  ck_assert_str_eq (a->name, b->name);
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *of_a = plan_model_print_key (a, i), *of_b = plan_model_print_key (b, i);
      ck_assert_msg (g_str_equal (of_a, of_b), "seed %d: %s: %s and %s", seed, keys[i].name, of_a,
                     of_b);
    }
}
