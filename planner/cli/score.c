/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/score.h"

#include "planner/bound.h"
#include "planner/cli/predict.h"
#include "planner/lower.h"
#include "sim/measure.h"

#include <string.h>

#define UNKNOWN G_MAXUINT64 /* memory of a score of which only the time was wanted */

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
  GHashTable *scores; /* Plan, distilled -> PlanScore */
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

static gboolean
find_score (CliScorer *self, const Plan *key, PlanScore *out_score)
{
  g_mutex_lock (&self->lock);
  const PlanScore *score = g_hash_table_lookup (self->scores, key);
  if (score)
    *out_score = *score;
  g_mutex_unlock (&self->lock);
  return score != NULL;
}

static void
keep_score (CliScorer *self, const Plan *key, const PlanScore *score)
{
  g_mutex_lock (&self->lock);
  self->n_simulated++;
  g_hash_table_replace (self->scores, g_memdup2 (key, sizeof *key),
                        g_memdup2 (score, sizeof *score));
  g_mutex_unlock (&self->lock);
}

static gboolean
matters (const PlanInquiry *inquiry, gint64 time_ns)
{
  return !inquiry || plan_inquiry_matters (inquiry, time_ns);
}

/* Time first: few plans are fast enough for their memory to matter. Tells what was found out, also
 * where that is not all: a time below 0 is none. */
static gboolean
simulate (const CliInput *input, const Plan *resolved, const PlanInquiry *inquiry, PlanScore *out)
{
  const PlanStack *stack = plan_stack_of (resolved, input->cluster->kind, NULL);
  g_autoptr (PlanSchedule) schedule
      = stack ? plan_lower (input->model, input->cluster, resolved, 0, NULL) : NULL;
  g_autoptr (SimCost) cost = schedule ? cli_cost_of (input, resolved, schedule, stack, NULL) : NULL;
  PlanMemory memory;
  *out = (PlanScore){ -1, UNKNOWN };
  if (!cost)
    return FALSE;
  out->time_ns = sim_measure_step (schedule, cost, cli_workspace ());
  if (!matters (inquiry, out->time_ns)
      || !sim_measure_memory (schedule, stack, cli_workspace (), &memory, NULL))
    return FALSE;
  out->memory_bytes = memory.device;
  return TRUE;
}

gboolean
cli_scorer_score (const Plan *resolved, const PlanInquiry *inquiry, gpointer data,
                  PlanScore *out_score)
{
  CliScorer *self = data;
  const CliInput *input = self->input;
  Plan key;
  PlanScore score;
  plan_lower_distil (input->model, input->cluster, resolved, &key);
  const gboolean is_known = find_score (self, &key, &score);
  if (is_known && !matters (inquiry, score.time_ns))
    return FALSE;
  if (!is_known || score.memory_bytes == UNKNOWN)
    {
      const gboolean ok = simulate (input, resolved, inquiry, &score);
      if (score.time_ns >= 0)
        keep_score (self, &key, &score);
      if (!ok)
        return FALSE;
    }
  *out_score = score;
  return TRUE;
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
