/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/floor.h"

#include "planner/bound.h"
#include "planner/cli/predict.h"
#include "planner/lower.h"
#include "planner/search.h"

/* What the host and each stream are kept busy with, and how much of that are gradients that are
 * added up. All of it can be added and multiplied. */
enum
{
  WORK_HOST,
  WORK_ADDING,        /* of the compute stream */
  WORK_ADDING_LAUNCH, /* of the host */
  WORK_N_ADDING,
  WORK_PERIOD, /* not work: the time that it takes; 0 where it was not simulated */
  WORK_STREAMS,
  WORK_N = WORK_STREAMS + PLAN_N_STREAMS,
};

typedef struct
{
  gint64 of[WORK_N];
} Work;

struct _CliFloors
{
  const CliInput *input;
  GMutex lock;
  GHashTable *micro_batches; /* Plan, relaxed -> Work */
};

CliFloors *
cli_floors_new (const CliInput *input)
{
  CliFloors *self = g_new0 (CliFloors, 1);
  self->input = input;
  g_mutex_init (&self->lock);
  self->micro_batches
      = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  return self;
}

void
cli_floors_free (CliFloors *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->micro_batches);
  g_mutex_clear (&self->lock);
  g_free (self);
}

static Work
add (const Work *a, const Work *b, gint64 times)
{
  Work sum = *a;
  for (guint i = 0; i < WORK_N; i++)
    sum.of[i] += times * b->of[i];
  return sum;
}

static gboolean
adds_gradients (const PlanSchedule *schedule, const PlanOp *op)
{
  return op->kind == PLAN_OP_ACCUMULATE
         && plan_schedule_buffer (schedule, (guint)op->refs[0].array)->category
                == PLAN_CATEGORY_MAIN_GRADS;
}

static void
note_op (const PlanSchedule *schedule, const SimCost *cost, guint node, gint64 times, Work *work)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  const gint64 ns = times * sim_cost_ns (cost, node);
  const gint64 launch_ns = times * sim_cost_launch_ns (cost, node);
  work->of[WORK_STREAMS + op->stream] += ns;
  work->of[WORK_HOST] += launch_ns;
  if (!adds_gradients (schedule, op))
    return;
  work->of[WORK_ADDING] += ns;
  work->of[WORK_ADDING_LAUNCH] += launch_ns;
  work->of[WORK_N_ADDING] += times;
}

/* Of one step, repeats as often as they are. */
static Work
work_of_step (const PlanSchedule *schedule, const SimCost *cost)
{
  Work work = { { 0 } };
  PlanTimes counting = { 0 };
  for (guint node = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);
       node < plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN); node++)
    {
      const gint64 times = plan_times_next (&counting, plan_schedule_node (schedule, node));
      if (times > 0)
        note_op (schedule, cost, node, times, &work);
    }
  return work;
}

/* Where activations are copied to the host and back, what waits for what says more than work. */
static gboolean
copies_activations (const Plan *plan)
{
  return plan->value[PLAN_OFFLOAD_LAYERS] > 0 || plan->value[PLAN_OFFLOAD_MODULES] != 0;
}

/* Of a step of so many micro batches without communication between data-parallel ranks but at its
 * end. */
static gboolean
find_relaxed (const CliFloors *self, const Plan *plan, gint64 micro_batches, Work *out)
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
  if (!cost)
    return FALSE;
  *out = work_of_step (schedule, cost);
  if (copies_activations (plan))
    out->of[WORK_PERIOD] = sim_measure_step (schedule, cost, cli_workspace ());
  return TRUE;
}

/* What the third micro batch adds to two; nothing where that cannot be said. */
static Work
find_micro_batch (CliFloors *self, const Plan *plan)
{
  Plan key;
  Work two, three, work = { { 0 } };
  plan_bound_relax (plan, self->input->cluster, 2, &key);
  g_mutex_lock (&self->lock);
  const Work *known = g_hash_table_lookup (self->micro_batches, &key);
  if (known)
    work = *known;
  g_mutex_unlock (&self->lock);
  if (known)
    return work;
  if (find_relaxed (self, plan, 2, &two) && find_relaxed (self, plan, 3, &three))
    work = add (&three, &two, -1);
  g_mutex_lock (&self->lock);
  g_hash_table_replace (self->micro_batches, g_memdup2 (&key, sizeof key),
                        g_memdup2 (&work, sizeof work));
  g_mutex_unlock (&self->lock);
  return work;
}

/* Where some layers are recomputed and others are not, each one more makes the same difference to
 * sums. */
static Work
find_work (CliFloors *self, const Plan *plan)
{
  const gint64 layers = plan->value[PLAN_RECOMPUTE_LAYERS];
  if (plan->value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_FULL
      || plan->value[PLAN_RECOMPUTE_METHOD] != PLAN_RECOMPUTE_METHOD_BLOCK
      || layers >= self->input->model->layers || copies_activations (plan))
    return find_micro_batch (self, plan);
  Plan some = *plan;
  some.value[PLAN_RECOMPUTE_LAYERS] = 1;
  const Work one = find_micro_batch (self, &some);
  some.value[PLAN_RECOMPUTE_LAYERS] = 2;
  const Work two = find_micro_batch (self, &some), another = add (&two, &one, -1);
  return add (&one, &another, layers - 1);
}

/* What a stream or the host does, it does one after the other, and what is exchanged within a
 * tensor-parallel group is waited for at once: together with compute it is one chain.
 *
 * Gradients in bf16 are added to bf16 there, 6 bytes moved for each; where they are sharded they
 * are copied, which moves 4 at least; where accumulation is fused nothing is done apart. Leaving
 * ops out shortens the longest path by what they took on it at most. */
static gint64
floor_ns (CliFloors *self, const Plan *resolved)
{
  const gboolean is_fused = resolved->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
  const Work work = find_work (self, resolved);
  const gint64 *of = work.of, *streams = &work.of[WORK_STREAMS];
  const gint64 less = is_fused ? of[WORK_ADDING] : of[WORK_ADDING] / 3 + 2 * of[WORK_N_ADDING];
  const gint64 less_launch = is_fused ? of[WORK_ADDING_LAUNCH] : 0;
  gint64 most = MAX (of[WORK_HOST] - less_launch, of[WORK_PERIOD] - less - less_launch);
  most = MAX (most, streams[PLAN_STREAM_COMPUTE] + streams[PLAN_STREAM_TENSOR] - less);
  for (PlanStream s = 0; s < PLAN_N_STREAMS; s++)
    if (s != PLAN_STREAM_COMPUTE)
      most = MAX (most, streams[s]);
  return plan_micro_batches (resolved, self->input->cluster) * MAX (most, 0);
}

/* Without its copies to the host, a plan has a floor that others have, too. */
gint64
cli_floors_ns (CliFloors *self, const Plan *resolved, gint64 enough_ns)
{
  Plan here = *resolved;
  if (resolved->value[PLAN_TASK] != PLAN_TASK_TRAIN
      || self->input->cluster->kind != PLAN_DEVICE_GPU)
    return 0;
  here.value[PLAN_OFFLOAD_LAYERS] = here.value[PLAN_OFFLOAD_MODULES] = 0;
  const gint64 least = floor_ns (self, &here);
  return least > enough_ns || plan_search_key_equal (&here, resolved)
             ? least
             : MAX (least, floor_ns (self, resolved));
}
