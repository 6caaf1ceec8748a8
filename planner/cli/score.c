/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/score.h"

#include "planner/bound.h"
#include "planner/cli/predict.h"
#include "planner/lower.h"
#include "sim/measure.h"

#include <string.h>

/* What is known of a plan so far. */
typedef struct
{
  gint64 time_ns;       /* below 0: nothing */
  guint64 memory_bytes; /* at least */
  gboolean is_whole;    /* and neither time nor memory is more */
} Known;

/* What a micro batch takes at least: all of it, and how much of that are gradients that are added
 * up. */
typedef struct
{
  gint64 period_ns, adding_ns, launching_ns, n_adding;
} Floor;

struct _CliScorer
{
  const CliInput *input;
  GMutex lock;
  GHashTable *scores; /* Plan, distilled -> Known */
  GHashTable *floors; /* Plan -> Floor */
  guint64 n_simulated;
};

static guint
hash_plan (gconstpointer data)
{
  const Plan *plan = data;
  guint64 hash = 0;
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    hash
        = (hash ^ (guint64)plan->value[f]) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15) + (hash >> 31);
  return (guint)(hash >> 32);
}

static gboolean
equal_plans (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (Plan)) == 0;
}

CliScorer *
cli_scorer_new (const CliInput *input)
{
  CliScorer *self = g_new0 (CliScorer, 1);
  self->input = input;
  g_mutex_init (&self->lock);
  self->scores = g_hash_table_new_full (hash_plan, equal_plans, g_free, g_free);
  self->floors = g_hash_table_new_full (hash_plan, equal_plans, g_free, g_free);
  return self;
}

void
cli_scorer_free (CliScorer *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->scores);
  g_hash_table_unref (self->floors);
  g_mutex_clear (&self->lock);
  g_free (self);
}

guint64
cli_scorer_n_simulated (const CliScorer *self)
{
  return self->n_simulated;
}

static Known
find_known (CliScorer *self, const Plan *key)
{
  g_mutex_lock (&self->lock);
  const Known *found = g_hash_table_lookup (self->scores, key);
  const Known known = found ? *found : (Known){ .time_ns = -1 };
  g_mutex_unlock (&self->lock);
  return known;
}

static void
keep_known (CliScorer *self, const Plan *key, const Known *known, gboolean is_simulated)
{
  g_mutex_lock (&self->lock);
  self->n_simulated += is_simulated;
  g_hash_table_replace (self->scores, g_memdup2 (key, sizeof *key),
                        g_memdup2 (known, sizeof *known));
  g_mutex_unlock (&self->lock);
}

/* Without an inquiry everything matters. */
static gboolean
matters (PlanInquiry *inquiry, const Known *known)
{
  return !inquiry
         || (plan_inquiry_may_fit (inquiry, known->memory_bytes)
             && (known->time_ns < 0 || plan_inquiry_matters (inquiry, known->time_ns)));
}

/* Cheapest first: what is live at once, then time, then the allocator. Stops when the plan no
 * longer matters; returns whether it was simulated. */
static gboolean
find_out (const CliInput *input, const Plan *resolved, PlanInquiry *inquiry, Known *known)
{
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, NULL);
  g_autoptr (PlanSchedule) schedule
      = stack ? plan_lower (input->model, input->cluster, resolved, 0, NULL) : NULL;
  if (!schedule)
    return FALSE;
  known->memory_bytes = MAX (known->memory_bytes, sim_measure_least_bytes (schedule, stack));
  if (!matters (inquiry, known))
    return FALSE;
  g_autoptr (SimCost) cost = cli_cost_of (input, resolved, schedule, stack, NULL);
  if (!cost)
    return FALSE;
  known->time_ns = sim_measure_step (schedule, cost, cli_workspace ());
  if (!matters (inquiry, known))
    return TRUE;
  const guint64 enough
      = inquiry ? plan_inquiry_enough_bytes (inquiry, known->time_ns) : G_MAXUINT64;
  guint64 bytes;
  if (sim_measure_device_bytes (schedule, stack, enough, cli_workspace (), &bytes, NULL))
    {
      known->memory_bytes = bytes;
      known->is_whole = bytes <= enough;
    }
  return TRUE;
}

gboolean
cli_scorer_score (const Plan *resolved, PlanInquiry *inquiry, gpointer data, PlanScore *out_score)
{
  CliScorer *self = data;
  const CliInput *input = self->input;
  Plan key;
  plan_lower_distil (input->model, input->cluster, resolved, &key);
  Known known = find_known (self, &key);
  if (!matters (inquiry, &known))
    return FALSE;
  if (!known.is_whole)
    {
      const gboolean is_simulated = find_out (input, resolved, inquiry, &known);
      keep_known (self, &key, &known, is_simulated);
    }
  *out_score = (PlanScore){ known.time_ns, known.memory_bytes };
  return known.is_whole;
}

/* What a step of so many micro batches takes without communication between data-parallel ranks
 * but at its end, and what its added gradients are. */
static gboolean
measure_relaxed (CliScorer *self, const Plan *plan, gint64 micro_batches, Floor *out)
{
  const CliInput *input = self->input;
  Plan relaxed, resolved;
  plan_bound_relax (plan, input->cluster, micro_batches, &relaxed);
  if (!plan_resolve (&relaxed, input->model, input->cluster, &resolved, NULL))
    return FALSE;
  const PlanStack *stack = plan_stack_of (&resolved, input->cluster->kind, NULL);
  g_autoptr (PlanSchedule) schedule
      = stack ? plan_lower (input->model, input->cluster, &resolved, 0, NULL) : NULL;
  g_autoptr (SimCost) cost
      = schedule ? cli_cost_of (input, &resolved, schedule, stack, NULL) : NULL;
  PlanCursor cursor;
  if (!cost)
    return FALSE;
  *out = (Floor){ .period_ns = sim_measure_step (schedule, cost, cli_workspace ()) };
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ACCUMULATE
        && plan_schedule_buffer (schedule, (guint)op->refs[0].array)->category
               == PLAN_CATEGORY_MAIN_GRADS)
      {
        out->adding_ns += sim_cost_ns (cost, cursor.node);
        out->launching_ns += sim_cost_launch_ns (cost, cursor.node);
        out->n_adding++;
      }
  return TRUE;
}

/* The steady period of one micro batch: what the third adds to two. */
static Floor
find_floor (CliScorer *self, const Plan *plan)
{
  Plan key;
  Floor two, three, floor = { 0 };
  plan_bound_relax (plan, self->input->cluster, 2, &key);
  g_mutex_lock (&self->lock);
  const Floor *known = g_hash_table_lookup (self->floors, &key);
  if (known)
    floor = *known;
  g_mutex_unlock (&self->lock);
  if (known)
    return floor;
  if (measure_relaxed (self, plan, 2, &two) && measure_relaxed (self, plan, 3, &three))
    floor = (Floor){ three.period_ns - two.period_ns, three.adding_ns - two.adding_ns,
                     three.launching_ns - two.launching_ns, three.n_adding - two.n_adding };
  g_mutex_lock (&self->lock);
  self->n_simulated += 2;
  g_hash_table_replace (self->floors, g_memdup2 (&key, sizeof key),
                        g_memdup2 (&floor, sizeof floor));
  g_mutex_unlock (&self->lock);
  return floor;
}

/* Gradients in bf16 are added to bf16 there, 6 bytes moved for each; where they are sharded they
 * are copied, which moves 4 at least; where accumulation is fused nothing is done apart. Leaving
 * ops out shortens the longest path by what they took on it at most. */
static gint64
floor_ns (CliScorer *self, const Plan *resolved)
{
  const Floor floor = find_floor (self, resolved);
  const gint64 less = resolved->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON
                          ? floor.adding_ns + floor.launching_ns
                          : floor.adding_ns / 3 + 2 * floor.n_adding;
  return plan_micro_batches (resolved, self->input->cluster) * MAX (floor.period_ns - less, 0);
}

/* Without its copies to the host, a plan has a floor that others have, too. */
gint64
cli_scorer_floor (const Plan *resolved, gint64 enough_ns, gpointer data)
{
  CliScorer *self = data;
  Plan here = *resolved;
  if (resolved->value[PLAN_TASK] != PLAN_TASK_TRAIN
      || self->input->cluster->kind != PLAN_DEVICE_GPU)
    return 0;
  here.value[PLAN_OFFLOAD_LAYERS] = here.value[PLAN_OFFLOAD_MODULES] = 0;
  const gint64 least = floor_ns (self, &here);
  return least > enough_ns || equal_plans (&here, resolved)
             ? least
             : MAX (least, floor_ns (self, resolved));
}
