/* SPDX-License-Identifier: Apache-2.0 */
/* What is legal and not modelled by this version yet; a line disappears when its feature
 * arrives. */
#include "config.h"

#include "planner/plan/rules-private.h"

#define LIMIT "a limit of this version, not of a framework"

/* X (FIELD, "field", "values that are modelled", mask of these values) */
/* clang-format off */
#define BIT(field, id) (1u << PLAN_##field##_##id)
#define UNBUILT_LIST(X)                                                                                          \
  X (ETP, "etp", "1", 1u << 1)                                                                                   \
  X (MOE_DISPATCHER, "moe_dispatcher", "alltoall", BIT (MOE_DISPATCHER, ALLTOALL))                               \
  X (MOE_GROUPED_GEMM, "moe_grouped_gemm", "on", BIT (MOE_GROUPED_GEMM, ON))                                     \
  X (MOE_PERMUTE_FUSION, "moe_permute_fusion", "on", BIT (MOE_PERMUTE_FUSION, ON))                               \
  X (MOE_SHARED_OVERLAP, "moe_shared_overlap", "off", BIT (MOE_SHARED_OVERLAP, OFF))                             \
  X (EP_OVERLAP, "ep_overlap", "off", BIT (EP_OVERLAP, OFF))                                                     \
  X (EP, "ep", "1", 1u << 1)                                                                                     \
  X (PP, "pp", "1", 1u << 1)                                                                                     \
  X (UNIT, "unit", "layer", BIT (UNIT, LAYER))
/* clang-format on */

static gboolean
is_outside (gint64 value, guint mask)
{
  return value < 0 || value >= 32 || (mask >> value & 1) == 0;
}

#define X(id, name, allowed, mask) \
  static gboolean is_outside_##id (const PlanFacts *f) \
  { \
    const gint64 base = PLAN_##id == PLAN_STACK ? PLAN_STACK_BASE : G_MAXINT64; \
    return is_outside (f->value[PLAN_##id] % base, mask); \
  }
UNBUILT_LIST (X)
#undef X

/* Norms are recomputed by nobody who fuses them, and by this program's runtime not yet. */
static gboolean
recomputes_other_modules (const PlanFacts *f)
{
  return IS (f, RECOMPUTE, SELECTIVE) && HAS_MODULE (f, RECOMPUTE_MODULES, LAYERNORM)
         && is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
has_experts (const PlanFacts *f)
{
  return f->model->experts > 0 || f->model->kv_lora > 0;
}

/* clang-format off */
static const PlanRuleEntry rules[] = {
#define X(id, name, allowed, mask) \
  { { "not-built-yet-" name, "only " name " = " allowed " is modelled by this version", LIMIT, \
      PLAN_ERROR_UNSUPPORTED }, \
    is_outside_##id, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_##id) },
  UNBUILT_LIST (X)
#undef X
  { { "not-built-yet-recompute-modules", "recompute_modules=layernorm is not modelled for stack=native by this version",
      LIMIT, PLAN_ERROR_UNSUPPORTED },
    recomputes_other_modules, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE_MODULES) },
  { { "not-built-yet-experts", "models with experts or latent attention are read, shown and counted, but not planned "
      "by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_experts, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_SEQ) },
};
/* clang-format on */

const PlanRuleEntry *
plan_rules_unbuilt (guint i)
{
  return i < G_N_ELEMENTS (rules) ? &rules[i] : NULL;
}
