/* SPDX-License-Identifier: Apache-2.0 */
/* Laws of lowered schedules of random plans: legal, balanced, equal on all ranks, with the memory
 * and traffic that follow from the plan's fields. Names with "wide" are for any plan that is
 * modelled. */
#include "config.h"

#include "planner/plan/megatron-lacks.h"
#include "planner/schedule/step-ops.h"
#include "sim/sim.h"
#include "tests/case.h"
#include "tests/prop/random.h"
#include "tests/share.h"
#include "tests/unit/test-names.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static PlanSchedule *
lower (const PlanCase *of, guint rank, int seed)
{
  g_autoptr (GError) error = NULL;
  PlanSchedule *schedule = plan_lower (of, rank, &error);
  ck_assert_msg (schedule != NULL, "seed %d: %s", seed, error ? error->message : "");
  return schedule;
}

/* A random plan for GPUs with everything that belongs to it. */
static void
case_init (TestCase *c, int seed)
{
  c->model = random_model ((guint)seed);
  c->cluster = random_gpu_cluster ((guint)seed);
  c->of = random_case ((guint)seed, c->model, c->cluster, seed % 2 ? "megatron-fsdp" : "native");
  c->schedule = lower (c->of, 0, seed);
}

/* Any plan that is modelled, for GPUs that know every format. */
static void
wide_case_init (TestCase *c, int seed)
{
  c->model = random_wide_model ((guint)seed);
  c->cluster = plan_cluster_new (seed % 3 ? "dgx-b200:1" : "dgx-h100:2", NULL);
  c->of = random_wide_case ((guint)seed, c->model, c->cluster);
  c->schedule = lower (c->of, 0, seed);
}

/* Memory is allocated before it is used, and freed; every read and reuse is ordered by streams and
 * events. */
START_TEST (wide_schedules_pass_their_check)
{
  TestCase c;
  g_autoptr (GError) error = NULL;
  wide_case_init (&c, _i);
  g_autofree char *plan = plan_print (&c.of->plan);
  ck_assert_msg (plan_schedule_check (c.schedule, &error), "seed %d: %s\n%s", _i,
                 error ? error->message : "", plan);
  test_case_clear (&c);
}
END_TEST

START_TEST (schedules_pass_their_check)
{
  TestCase c;
  g_autoptr (GError) error = NULL;
  case_init (&c, _i);
  ck_assert_msg (plan_schedule_check (c.schedule, &error), "seed %d: %s", _i,
                 error ? error->message : "");
  test_case_clear (&c);
}
END_TEST

START_TEST (print_then_parse_is_identity)
{
  TestCase c;
  g_autoptr (GError) error = NULL;
  case_init (&c, _i);
  g_autofree char *text = plan_schedule_print (c.schedule);
  g_autoptr (PlanSchedule) again = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (again != NULL, "seed %d: %s", _i, error ? error->message : "");
  g_autofree char *text_again = plan_schedule_print (again);
  ck_assert_str_eq (text, text_again);
  test_case_clear (&c);
}
END_TEST

/* Buffers allocated in a step are freed in it; those of setup are freed in teardown. */
START_TEST (every_alloc_is_freed)
{
  TestCase c;
  case_init (&c, _i);
  g_autofree gint *taken = g_new0 (gint, plan_schedule_n_buffer_ids (c.schedule) + 1);
  gint balance[PLAN_N_SECTIONS] = { 0 };
  for (PlanSection s = 0; s < PLAN_N_SECTIONS; s++)
    {
      PlanCursor cursor;
      const PlanOp *op;
      for (plan_cursor_start (&cursor, c.schedule, s); (op = plan_cursor_next (&cursor));)
        if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY)
          {
            const gint change = op->kind == PLAN_OP_ALLOC ? 1 : op->kind == PLAN_OP_FREE ? -1 : 0;
            gint *count = &taken[plan_cursor_buffer (&cursor, &op->refs[0])];
            *count += change;
            balance[s] += change;
            ck_assert_msg (*count == 0 || *count == 1, "seed %d", _i);
          }
    }
  ck_assert_int_eq (balance[PLAN_SECTION_STEP], 0);
  ck_assert_int_eq (balance[PLAN_SECTION_SETUP], -balance[PLAN_SECTION_TEARDOWN]);
  test_case_clear (&c);
}
END_TEST

/* "kind stream elements bytes" of every collective, in order. */
static char *
collectives (const PlanSchedule *schedule)
{
  GString *text = g_string_new (NULL);
  for (PlanSection s = 0; s < PLAN_N_SECTIONS; s++)
    {
      PlanCursor cursor;
      const PlanOp *op;
      for (plan_cursor_start (&cursor, schedule, s); (op = plan_cursor_next (&cursor));)
        if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
          g_string_append_printf (
              text, "%s %u %" G_GINT64_FORMAT " %s\n", plan_op_name (op->kind), op->stream,
              op->dims[0],
              plan_dtype_name (plan_schedule_buffer (schedule, (guint)op->refs[0].array)->dtype));
    }
  return g_string_free (text, FALSE);
}

START_TEST (all_ranks_issue_the_same_collectives)
{
  TestCase c;
  case_init (&c, _i);
  g_autofree char *expected = collectives (c.schedule);
  for (guint rank = 1; rank < plan_schedule_ranks (c.schedule); rank++)
    {
      g_autoptr (PlanSchedule) other = lower (c.of, rank, _i);
      g_autofree char *found = collectives (other);
      ck_assert_msg (g_strcmp0 (expected, found) == 0, "seed %d: rank %u differs", _i, rank);
    }
  test_case_clear (&c);
}
END_TEST

/* Elements that this rank sends in a step if collectives are rings: weights, and gradients. */
typedef struct
{
  guint64 gathered, reduced;
} Traffic;

static Traffic
traffic_of (const PlanSchedule *schedule)
{
  Traffic t = { 0 };
  PlanCursor cursor;
  const PlanOp *op;
  const guint64 others = plan_schedule_ranks (schedule) - 1;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ALL_GATHER && op->stream == PLAN_STREAM_GATHER)
      t.gathered += (guint64)op->dims[0] * others;
    else if (op->kind == PLAN_OP_REDUCE_SCATTER)
      t.reduced += (guint64)op->dims[0] * others;
    else if (op->kind == PLAN_OP_ALL_REDUCE)
      t.reduced += 2 * (guint64)op->dims[0] * others / (others + 1);
  return t;
}

/* Elements, with padding, of the layers' buckets or of all other ones. */
static guint64
elements_of (const PlanLayout *layout, gboolean of_units)
{
  guint64 elements = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_bucket_is_unit (kind) == of_units)
      elements += layout->buckets[kind].padded * (guint64)layout->buckets[kind].units;
  return elements;
}

/* Elements sent follow from the strategy: weights and gradients travel once in a step, once in each
 * micro batch, or in both its passes. */
START_TEST (traffic_follows_the_strategy)
{
  TestCase c;
  case_init (&c, _i);
  const PlanStack *stack = c.of->stack;
  const guint64 ranks = (guint64)plan_data_parallel (&c.of->plan, c.cluster);
  const guint64 m = (guint64)plan_micro_batches (&c.of->plan, c.cluster);
  const gint64 strategy = c.of->plan.value[PLAN_STRATEGY];
  const guint64 units = elements_of (&c.of->layout, TRUE);
  const guint64 others = elements_of (&c.of->layout, FALSE);
  const guint64 ring = ranks - 1;
  const gboolean gathers_more = stack->weights.ahead == PLAN_AHEAD_HOOKS
                                || (c.of->plan.value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL
                                    && c.of->plan.value[PLAN_RECOMPUTE_LAYERS] > 1);
  Traffic expected = { 0 }, found = traffic_of (c.schedule);
  if (strategy == PLAN_STRATEGY_NO_SHARD)
    expected.reduced = 2 * (units + others) * ring / ranks;
  else
    {
      expected.gathered = (units + others) / ranks * ring;
      expected.reduced = (units + others) / ranks * ring;
    }
  if (strategy >= PLAN_STRATEGY_OPTIM_GRADS)
    expected.reduced *= m;
  if (strategy == PLAN_STRATEGY_OPTIM_GRADS_PARAMS)
    {
      expected.gathered = (2 * m * units + others) / ranks * ring;
      /* The output layer's hook gathers ahead some units that nothing reads; recompute of a chunk
       * of layers may gather some units twice. */
      if (gathers_more)
        ck_assert_uint_ge (found.gathered, expected.gathered);
    }
  if (!gathers_more || strategy != PLAN_STRATEGY_OPTIM_GRADS_PARAMS)
    ck_assert_msg (found.gathered == expected.gathered, "seed %d", _i);
  /* all-reduces round once per bucket */
  const guint64 slack = strategy == PLAN_STRATEGY_NO_SHARD ? (guint64)c.model->layers + 2 : 0;
  ck_assert_msg (found.reduced <= expected.reduced && expected.reduced <= found.reduced + slack,
                 "seed %d: %" G_GUINT64_FORMAT " for %" G_GUINT64_FORMAT, _i, found.reduced,
                 expected.reduced);
  test_case_clear (&c);
}
END_TEST

/* Sizes that follow from a plan's fields and layout alone. */
typedef struct
{
  const PlanLayout *layout;
  const PlanStack *stack;
  guint64 inner, outer, m; /* ranks of the sharding group, its replicas, micro batches */
  guint64 units, others;   /* elements, with padding, of one rank of a tensor-parallel group */
  gboolean shards[3];      /* optimizer, gradients, weights */
  gboolean is_hfsdp, has_columns;
} Sizes;

static void
sizes_init (Sizes *s, const TestCase *c)
{
  const gint64 *value = c->of->plan.value;
  const guint64 all = (guint64)(plan_data_parallel (&c->of->plan, c->cluster) * value[PLAN_CP]);
  s->stack = c->of->stack;
  s->outer = (guint64)value[PLAN_DP_OUTER];
  s->inner = all / s->outer;
  s->m = (guint64)plan_micro_batches (&c->of->plan, c->cluster);
  s->layout = &c->of->layout;
  s->units = elements_of (s->layout, TRUE);
  s->others = elements_of (s->layout, FALSE);
  for (guint i = 0; i < 3; i++)
    s->shards[i] = s->inner > 1 && value[PLAN_STRATEGY] > (gint64)i;
  /* Stacks that gather weights in each pass shard them under every strategy that shards gradients.
   */
  s->shards[2] = s->shards[2] || (s->shards[1] && s->stack->weights.gathers_each_pass);
  s->is_hfsdp = value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM;
  s->has_columns = value[PLAN_PARAM_GATHER] == PLAN_PARAM_GATHER_MXFP8
                   || value[PLAN_PARAM_GATHER] == PLAN_PARAM_GATHER_NVFP4;
}

/* Elements of this rank that the device updates: all but the host's share of each bucket. */
static guint64
updated_here (const TestCase *c, const Sizes *s)
{
  guint64 count = 0;
  const guint64 parts = (s->shards[0] ? s->inner : 1) * (s->is_hfsdp ? s->outer : 1);
  for (guint b = 0; b < PLAN_N_BUCKETS; b++)
    {
      const guint64 own = s->layout->buckets[b].padded / parts;
      const double share = (double)c->of->plan.value[PLAN_OFFLOAD_OPTIMIZER] / 1e6;
      count += (own - (guint64)((double)own * share)) * (guint64)s->layout->buckets[b].units;
    }
  return count;
}

/* Bytes of the buffers into which sequence parallelism gathers activations and gradients, in stacks
 * that keep these buffers between steps. */
static guint64
static_bytes (const TestCase *c, const Sizes *s)
{
  const gint64 *value = c->of->plan.value;
  if (s->stack->layer.sequences != PLAN_SEQUENCES_STATIC || value[PLAN_SP] == PLAN_SP_OFF)
    return 0;
  return (value[PLAN_TASK] == PLAN_TASK_EVAL ? 1u : 2u)
         * plan_dtype_bytes (plan_weights_dtype (&c->of->plan),
                             (guint64)(value[PLAN_MBS] * value[PLAN_SEQ] * c->model->hidden));
}

/* Bytes of each category between steps follow from the strategy and the formats. */
START_TEST (wide_resting_memory_follows_the_plan)
{
  TestCase c;
  Sizes s;
  g_autoptr (GError) error = NULL;
  wide_case_init (&c, _i);
  sizes_init (&s, &c);
  g_autoptr (SimCost) cost = sim_cost_new_constant (c.schedule, 1, 1);
  g_autoptr (PlanTrace) trace = sim_run (c.schedule, cost, NULL, &error);
  ck_assert_msg (trace != NULL, "seed %d: %s", _i, error ? error->message : "");
  const guint64 all = s.units + s.others, parts = s.shards[0] ? s.inner : 1;
  const guint64 optimizer = all / parts / (s.is_hfsdp ? s.outer : 1);
  const gint64 *value = c.of->plan.value;
  const PlanDtype plain = plan_weights_dtype (&c.of->plan),
                  quantised = plan_gathered_dtype (&c.of->plan);
  const gboolean is_quantised = value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE;
  const guint64 linear
      = is_quantised ? s.layout->buckets[PLAN_BUCKET_LAYER].padded * (guint64)c.model->layers : 0;
  const guint64 cut = s.shards[2] ? s.inner : 1;
  const gboolean has_main = value[PLAN_MAIN_PARAMS] != PLAN_MAIN_PARAMS_AUTO;
  const gboolean rests = !(s.shards[2] && s.stack->weights.rounds_as_gathered && has_main);
  const guint64 weights = rests
                              ? plan_dtype_bytes (quantised, linear / cut) * (s.has_columns ? 2 : 1)
                                    + plan_dtype_bytes (plain, (all - linear) / cut)
                              : 0;
  const guint64 main
      = has_main ? plan_dtype_bytes (plan_field_dtype (&c.of->plan, PLAN_MAIN_PARAMS), optimizer)
                 : 0;
  const guint64 here = updated_here (&c, &s);
  guint64 moments = plan_dtype_bytes (plan_field_dtype (&c.of->plan, PLAN_EXP_AVG), here);
  if (value[PLAN_OPTIMIZER] == PLAN_OPTIMIZER_ADAMW)
    moments += plan_dtype_bytes (plan_field_dtype (&c.of->plan, PLAN_EXP_AVG_SQ), here);
  if (value[PLAN_FUSED_MASTERS] == PLAN_FUSED_MASTERS_ON)
    moments += 4 * here;
  guint64 peaks[PLAN_N_PHASES], highest = 0;
  plan_memory_phase_peaks (&trace->memory, c.schedule, 1, peaks);
  for (guint p = 0; p < PLAN_N_PHASES; p++)
    highest = MAX (highest, peaks[p]);
  ck_assert_uint_eq (highest, trace->memory.max_allocated);
  if (value[PLAN_TASK] == PLAN_TASK_TRAIN)
    ck_assert_uint_ge (peaks[PLAN_PHASE_OPTIMIZER], trace->memory.allocated);
  else
    ck_assert_uint_eq (peaks[PLAN_PHASE_OPTIMIZER], 0);
  ck_assert_uint_eq (trace->memory.resting[PLAN_CATEGORY_WEIGHTS], weights);
  ck_assert_uint_eq (trace->memory.resting[PLAN_CATEGORY_MAIN_PARAMS], main);
  ck_assert_uint_eq (trace->memory.resting[PLAN_CATEGORY_OPTIMIZER], moments);
  ck_assert_uint_eq (trace->memory.resting[PLAN_CATEGORY_ACTIVATIONS], static_bytes (&c, &s));
  test_case_clear (&c);
}
END_TEST

/* Bytes that this rank sends in a step's collectives on one stream, if they are rings: an
 * all-gather and a reduce-scatter send (n - 1) parts of n, an all-reduce twice as many. */
static double
sent_on (const PlanSchedule *schedule, PlanStream stream)
{
  double sent = 0;
  PlanCursor cursor;
  const PlanOp *op;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->group >= 0 && op->stream == stream)
      {
        const PlanBuffer *buffer = plan_schedule_buffer (schedule, (guint)op->refs[0].array);
        const double bytes = (double)plan_dtype_bytes (buffer->dtype, (guint64)op->dims[0]);
        const double n = plan_schedule_group_size (schedule, op);
        const gboolean is_scalar = (guint)n == plan_schedule_ranks (schedule)
                                   && buffer->category != PLAN_CATEGORY_GRAD_BUCKETS
                                   && buffer->category != PLAN_CATEGORY_MAIN_GRADS;
        if (stream == PLAN_STREAM_REDUCE && is_scalar)
          continue; /* sums for the norm, largest magnitudes */
        sent += op->kind == PLAN_OP_ALL_REDUCE ? 2 * bytes * (n - 1) / n : bytes * (n - 1);
      }
  return sent;
}

/* Counts the layers that are recomputed, and how many of them are not the last of their chunk. */
static void
count_recomputed (const TestCase *c, double *out_again, double *out_inside)
{
  const gint64 *value = c->of->plan.value;
  const gint64 layers = c->model->layers, n = value[PLAN_RECOMPUTE_LAYERS];
  const gboolean is_block = value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_BLOCK;
  const gboolean is_full = value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL;
  const gboolean is_eval = value[PLAN_TASK] == PLAN_TASK_EVAL;
  *out_again = is_eval || value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_NONE ? 0
               : is_full && is_block                                   ? (double)n
                                                                       : (double)layers;
  *out_inside = is_full && !is_block && !is_eval ? (double)(layers - (layers + n - 1) / n) : 0;
}

/* Units are gathered once in each pass. Recompute gathers them once more where it reads the rowwise
 * copy of quantised weights and the backward pass the columnwise one; and it may gather units once
 * more that are not the last of their chunk. */
static void
gathers_follow_the_strategy (const TestCase *c, const Sizes *s, int seed)
{
  double again, inside;
  if (!s->shards[2]
      || s->stack->weights.ahead == PLAN_AHEAD_HOOKS) /* whose hooks gather some units in vain */
    return;
  count_recomputed (c, &again, &inside);
  const double r = (double)(s->inner - 1) / (double)s->inner, m = (double)s->m;
  const double w = plan_dtype_bits (plan_gathered_dtype (&c->of->plan)) / 8.0;
  const double p = plan_dtype_bits (plan_weights_dtype (&c->of->plan)) / 8.0;
  const double layers = (double)c->model->layers;
  const gboolean is_eval = c->of->plan.value[PLAN_TASK] == PLAN_TASK_EVAL;
  const gboolean stays = c->of->plan.value[PLAN_STRATEGY] != PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
  const double passes = is_eval || stays ? 1 : 2;
  const double linear = w * (double)s->layout->buckets[PLAN_BUCKET_LAYER].padded;
  const double unit = linear + p * (double)s->layout->buckets[PLAN_BUCKET_PLAIN].padded;
  /* Embedding and head: once per step, or in each pass; with groups of their own the embedding
   * once more, for a backward pass that does not read it. */
  const gboolean by_pass = s->stack->weights.outer >= PLAN_OUTER_EACH_PASS;
  const gboolean has_own
      = s->stack->weights.outer == PLAN_OUTER_OWN_GROUPS && !c->model->tied_embeddings;
  const double embedding = (double)s->layout->buckets[PLAN_BUCKET_EMBEDDING].padded;
  const double others = (double)s->others + (has_own && !is_eval ? embedding : 0);
  const double least = (m * (passes * layers * unit + (s->has_columns ? again * linear : 0))
                        + p * (by_pass ? m * others : (double)s->others))
                       * r;
  /* In a pool, what was gathered ahead of a chunk may have to make room for its other layers. */
  const gboolean pools = c->of->plan.value[PLAN_DOUBLE_BUFFER] != PLAN_DOUBLE_BUFFER_OFF;
  const double extra = pools && inside > 0 ? layers : inside;
  const double most = least + m * extra * unit * r;
  const double sent = sent_on (c->schedule, PLAN_STREAM_GATHER);
  g_autofree char *words = plan_print (&c->of->plan);
  ck_assert_msg (sent >= least * (1 - 1e-9) && sent <= most * (1 + 1e-9),
                 "seed %d: %.0f gathered, not %.0f to %.0f\n%s", seed, sent, least, most, words);
}

/* Bytes that are sent in a step follow from when each strategy communicates. */
START_TEST (wide_traffic_follows_the_strategy)
{
  TestCase c;
  Sizes s;
  wide_case_init (&c, _i);
  sizes_init (&s, &c);
  const double all = (double)(s.units + s.others), inner = (double)s.inner, outer = (double)s.outer;
  const double r = (inner - 1) / inner, ro = (outer - 1) / outer, m = (double)s.m;
  const PlanDtype grad = plan_field_dtype (&c.of->plan, PLAN_GRAD_COMM);
  const double g = plan_dtype_bits (grad) / 8.0;
  const gboolean is_eval = c.of->plan.value[PLAN_TASK] == PLAN_TASK_EVAL;
  const gboolean syncs
      = c.of->plan.value[PLAN_SYNC_EVERY_MICRO_BATCH] == PLAN_SYNC_EVERY_MICRO_BATCH_ON;
  const gboolean keeps = c.of->plan.value[PLAN_GRAD_SYNC] == PLAN_GRAD_SYNC_LAST;
  const double times = is_eval ? 0 : (s.shards[1] && !keeps) || syncs ? m : 1;
  const double outer_times = is_eval ? 0 : syncs ? m : 1;
  const gboolean scatters
      = s.shards[1] || (s.shards[0] && !(s.stack->grads.fresh == PLAN_GRADS_LEFT));
  const double reduced = times * (scatters ? 1 : 2) * g * all * r;
  const double held = all / (s.shards[1] ? inner : 1);
  const double outer_reduced = outer_times * (s.is_hfsdp ? 1 : 2) * g * held * ro;
  const double found = sent_on (c.schedule, PLAN_STREAM_REDUCE);
  const double found_outer = sent_on (c.schedule, PLAN_STREAM_OUTER_REDUCE);
  ck_assert_msg (fabs (found - reduced) <= 1e-9 * reduced, "seed %d: %.0f, not %.0f", _i, found,
                 reduced);
  ck_assert_msg (fabs (found_outer - outer_reduced) <= 1e-9 * outer_reduced,
                 "seed %d: %.0f, not %.0f between replicas", _i, found_outer, outer_reduced);
  gathers_follow_the_strategy (&c, &s, _i);
  test_case_clear (&c);
}
END_TEST

/* Tensors neither overlap nor leave their bucket, and a bucket's shards are equal. */
START_TEST (layouts_hold_every_tensor_once)
{
  TestCase c;
  case_init (&c, _i);
  const PlanLayout *layout = &c.of->layout;
  for (guint b = 0; b < PLAN_N_BUCKETS; b++)
    {
      const PlanBucket *bucket = &layout->buckets[b];
      ck_assert_uint_eq (bucket->padded % layout->shards, 0);
      for (guint i = 0; i < bucket->n_slots; i++)
        {
          const PlanSlot *s = &layout->slots[b][i];
          const guint64 end = s->offset + s->tensor.rows * s->tensor.cols;
          ck_assert_uint_le (end, bucket->padded);
          for (guint j = 0; j < i; j++)
            {
              const PlanSlot *t = &layout->slots[b][j];
              ck_assert_msg (t->offset >= end
                                 || t->offset + t->tensor.rows * t->tensor.cols <= s->offset,
                             "seed %d: %s and %s overlap", _i, s->tensor.name, t->tensor.name);
            }
        }
    }
  test_case_clear (&c);
}
END_TEST

/* Plans that differ in comm_unit have equal keys only if their schedules are equal, and do have
 * them where comm_unit has no effect. */
START_TEST (equal_keys_have_equal_schedules)
{
  static const gint64 tenths[] = { 0, 1, 5, 9, 10, 11, 20, 25, 30, 40, 80, 200 };
  TestCase c;
  wide_case_init (&c, _i);
  PlanCase other = *c.of; /* some stacks refuse it, and nothing of a case depends on it */
  const PlanLayout *layout = &c.of->layout;
  const gint64 unit = (gint64)(layout->buckets[PLAN_BUCKET_LAYER].padded
                               + layout->buckets[PLAN_BUCKET_PLAIN].padded);
  Plan keys[G_N_ELEMENTS (tenths)];
  char *texts[G_N_ELEMENTS (tenths)];
  for (guint i = 0; i < G_N_ELEMENTS (tenths); i++)
    {
      other.plan.value[PLAN_COMM_UNIT] = unit * tenths[i] / 10 + 1;
      g_autoptr (PlanSchedule) schedule = lower (&other, 0, _i);
      texts[i] = plan_schedule_print (schedule);
      plan_lower_distil (&other, &keys[i]);
      for (guint j = 0; j < i; j++)
        if (memcmp (&keys[i], &keys[j], sizeof keys[i]) == 0)
          ck_assert_msg (strcmp (texts[i], texts[j]) == 0, "seed %d: %" G_GINT64_FORMAT " tenths",
                         _i, tenths[i]);
    }
  if (c.of->plan.value[PLAN_STRATEGY] == PLAN_STRATEGY_NO_SHARD && !layout->by_size
      && c.of->plan.value[PLAN_GRAD_COMM] == c.of->plan.value[PLAN_MAIN_GRADS]
      && c.of->plan.value[PLAN_REDUCE_ALGO] == PLAN_REDUCE_ALGO_RS)
    ck_assert_mem_eq (&keys[0], &keys[G_N_ELEMENTS (tenths) - 1], sizeof keys[0]);
  for (guint i = 0; i < G_N_ELEMENTS (tenths); i++)
    g_free (texts[i]);
  test_case_clear (&c);
}
END_TEST

/* A model that is large enough for several buckets, small enough for some to span many layers. */
static PlanModel *
model_of_many_buckets (GRand *rand)
{
  static const char *const families[] = { "llama", "qwen2", "qwen3", "gpt2", "mpt" };
  const gint heads = g_rand_int_range (rand, 4, 33);
  g_autofree char *spec = g_strdup_printf (
      "family=%s,layers=%d,hidden=%d,ffn=%d,heads=%d,kv_heads=%d,head_dim=64,vocab=%d,max_seq=64",
      families[g_rand_int_range (rand, 0, G_N_ELEMENTS (families))], g_rand_int_range (rand, 1, 41),
      64 * heads, 64 * g_rand_int_range (rand, 8, 129), heads, heads,
      g_rand_int_range (rand, 1000, 60000));
  return plan_model_new (spec, NULL);
}

/* Sizes of the buckets in the order in which they fill: from the last parameter to the first, or
 * the other way round with a shared embedding in a bucket of its own. */
static GArray *
cut_into_buckets (const PlanModel *model, gboolean is_backwards, guint64 closes_at,
                  guint64 multiple)
{
  g_autoptr (GArray) all = test_name_all (model, (model->vocab + 127) / 128 * 128);
  GArray *sizes = g_array_new (FALSE, FALSE, sizeof (guint64));
  guint64 filled = 0;
  for (guint k = 0; k < all->len; k++)
    {
      filled += g_array_index (all, TestNamed, is_backwards ? all->len - 1 - k : k).elements;
      if (filled < closes_at && k + 1 < all->len
          && (is_backwards || k > 0 || !model->tied_embeddings))
        continue;
      filled = (filled + multiple - 1) / multiple * multiple;
      g_array_append_val (sizes, filled);
      filled = 0;
    }
  return sizes;
}

/* The buffer of gradients that an op of the compute stream leaves something in; -1: none. */
static gint64
gradients_written (const PlanSchedule *schedule, const PlanCursor *cursor, const PlanOp *op)
{
  if (op->stream != PLAN_STREAM_COMPUTE
      || (op->kind != PLAN_OP_ACCUMULATE && op->kind != PLAN_OP_GEMM_ADD))
    return -1;
  return plan_schedule_buffer (schedule, (guint)op->refs[0].array)->category
                 == PLAN_CATEGORY_MAIN_GRADS
             ? (gint64)plan_cursor_buffer (cursor, &op->refs[0])
             : -1;
}

/* A plan whose buckets go by size. */
static PlanCase *
case_by_size (GRand *rand, const PlanModel *model, const PlanCluster *cluster, int seed)
{
  Plan plan;
  const gboolean is_ddp = seed % 2 && !plan_megatron_lacks (model, 0);
  const gboolean shards = is_ddp && g_rand_boolean (rand);
  const gboolean overlaps = g_rand_int_range (rand, 0, 4) > 0;
  g_autofree char *gbs
      = g_strdup_printf ("%d", (int)plan_cluster_devices (cluster) * g_rand_int_range (rand, 1, 4));
  const struct
  {
    const char *field, *value;
  } fields[] = { { "stack", is_ddp ? "megatron" : "megatron-fsdp" },
                 { "strategy", shards ? "optim" : "no_shard" },
                 { "overlap_grad_reduce", overlaps ? "on" : "off" },
                 { "overlap_param_gather", shards && overlaps ? "on" : "off" },
                 { "recompute", g_rand_boolean (rand) ? "full" : "none" },
                 { "gbs", gbs },
                 { "seq", "64" } };
  plan_init (&plan);
  for (guint i = 0; i < G_N_ELEMENTS (fields); i++)
    ck_assert (plan_set (&plan, fields[i].field, fields[i].value, NULL));
  return test_case_of (model, cluster, &plan);
}

/* Collectives of whole buckets: the sizes that there must be, and how many were seen. */
typedef struct
{
  GArray *reduced, *gathered; /* elements of each, in order */
  guint n_reduced, n_gathered;
} Travel;

static void
travel_init (Travel *t, const PlanModel *model, const Plan *plan, guint64 ranks)
{
  const gint64 *value = plan->value;
  const gboolean is_ddp = value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON;
  const gboolean shards = value[PLAN_STRATEGY] == PLAN_STRATEGY_OPTIM;
  const gboolean overlaps = value[PLAN_OVERLAP_GRAD_REDUCE] == PLAN_OVERLAP_GRAD_REDUCE_ON;
  guint64 multiple = ranks; /* of the ranks and of 128 */
  while (multiple % 128 != 0)
    multiple += ranks;
  GArray *filled
      = cut_into_buckets (model, is_ddp, overlaps ? MAX (40000000, 1000000 * ranks) : G_MAXUINT64,
                          shards ? multiple : 1);
  GArray *turned = g_array_new (FALSE, FALSE, sizeof (guint64));
  for (guint i = filled->len; i-- > 0;)
    g_array_append_val (turned, g_array_index (filled, guint64, i));
  /* in the order of gradients, last parameters first; without overlap as they fill */
  t->reduced = g_array_ref (is_ddp || !overlaps ? filled : turned);
  /* as the forward pass gets there */
  t->gathered = g_array_ref (overlaps ? turned : filled);
  t->n_reduced = t->n_gathered = 0;
  g_array_unref (filled);
  g_array_unref (turned);
}

static void
travel_clear (Travel *t)
{
  g_array_unref (t->reduced);
  g_array_unref (t->gathered);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Travel, travel_clear)

/* One collective per bucket: of the sizes of cut_into_buckets, in their order, behind the last
 * gradient of the bucket and before any other; and one gather of what it becomes. */
START_TEST (buckets_travel_one_by_one)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = model_of_many_buckets (rand);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (_i % 3 ? "dgx-h100:1" : "dgx-h100:12", NULL);
  const guint64 ranks = (guint64)plan_cluster_devices (cluster);
  g_autoptr (PlanCase) of = case_by_size (rand, model, cluster, _i);
  const gboolean shards = of->plan.value[PLAN_STRATEGY] == PLAN_STRATEGY_OPTIM;
  g_auto (Travel) t = { 0 };
  travel_init (&t, model, &of->plan, ranks);
  g_autoptr (PlanSchedule) schedule = lower (of, 0, _i);
  ck_assert_msg (plan_schedule_check (schedule, &error), "seed %d: %s", _i,
                 error ? error->message : "");
  gint64 last = -1;
  PlanCursor cursor;
  const PlanOp *op;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    {
      const gint64 written = gradients_written (schedule, &cursor, op);
      last = written >= 0 ? written : last;
      if (op->group < 0 || (op->stream != PLAN_STREAM_REDUCE && op->stream != PLAN_STREAM_GATHER)
          || plan_schedule_buffer (schedule, (guint)op->refs[0].array)->category
                 == PLAN_CATEGORY_WORKSPACE)
        continue;
      const gboolean gathers = op->kind == PLAN_OP_ALL_GATHER;
      const GArray *sizes = gathers ? t.gathered : t.reduced;
      const guint at = gathers ? t.n_gathered++ : t.n_reduced++;
      ck_assert_msg (at < sizes->len
                         && (guint64)op->dims[0] * (shards ? ranks : 1)
                                == g_array_index (sizes, guint64, at),
                     "seed %d: %s of bucket %u has %" G_GINT64_FORMAT " elements", _i,
                     plan_op_name (op->kind), at, op->dims[0]);
      ck_assert_msg (gathers || of->plan.value[PLAN_OVERLAP_GRAD_REDUCE] == 0
                         || last == (gint64)plan_cursor_buffer (&cursor, &op->refs[0]),
                     "seed %d: bucket %u is not reduced behind its last gradient", _i, at);
    }
  ck_assert_uint_eq (t.n_reduced, t.reduced->len);
  ck_assert_uint_eq (t.n_gathered, shards ? t.gathered->len : 0);
}
END_TEST

/* The schedule of a model of so many layers; its buckets recur after `out_step` of them. */
static PlanSchedule *
lower_by_size (int seed, gint64 layers, gint64 *out_step)
{
  static const char *const stacks[] = { "megatron", "megatron-fsdp@2026-06-15" };
  g_autofree char *spec = g_strdup_printf (
      "family=llama,layers=%d,hidden=%d,ffn=%d,heads=16,kv_heads=8,head_dim=128,vocab=32000,"
      "max_seq=64",
      (int)layers, seed < 4 ? 4096 : 1024, seed < 4 ? 14336 : 4096);
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_auto (PlanBuckets) buckets = { 0 };
  g_autofree char *words = g_strdup_printf ("stack=%s strategy=%s gbs=16 seq=64", stacks[seed % 2],
                                            seed / 2 % 2 ? "optim" : "no_shard");
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  plan_buckets_init (&buckets, model, &of->layout.rule);
  *out_step = ABS (plan_buckets_cycle (&buckets).step);
  return test_lower (of, 0);
}

/* Layers whose parameters lie alike are one repeat: more of them take no more ops. */
START_TEST (buckets_that_recur_are_folded)
{
  gint64 step;
  g_autoptr (PlanSchedule) schedule = lower_by_size (_i, 60, &step);
  ck_assert_int_gt (step, 0);
  g_autoptr (PlanSchedule) deeper = lower_by_size (_i, 60 + 4 * step, &step);
  ck_assert_uint_eq (plan_schedule_n_nodes (schedule), plan_schedule_n_nodes (deeper));
}
END_TEST

/* FLOPs of a step's products and attention, and of those marked as recomputed. */
typedef struct
{
  double all, again;
} Flops;

static Flops
flops_of (const PlanSchedule *schedule)
{
  g_autofree gint64 *times = plan_schedule_step_times (schedule);
  g_autofree gboolean *is_again = plan_schedule_recomputed (schedule);
  Flops flops = { 0, 0 };
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const double these
          = (double)times[node] * plan_op_flops (plan_schedule_node (schedule, node));
      flops.all += these;
      flops.again += is_again[node] ? these : 0;
    }
  return flops;
}

/* The FLOPs marked as recomputed are those that the same plan without recompute lacks. */
START_TEST (only_what_is_computed_again_is_said_to_be)
{
  static const PlanField fields[]
      = { PLAN_RECOMPUTE, PLAN_RECOMPUTE_METHOD, PLAN_RECOMPUTE_LAYERS, PLAN_RECOMPUTE_MODULES };
  Plan initial;
  TestCase c;
  wide_case_init (&c, _i);
  plan_init (&initial);
  Plan keeps = c.of->plan;
  for (guint i = 0; i < G_N_ELEMENTS (fields); i++)
    keeps.value[fields[i]] = initial.value[fields[i]];
  keeps.value[PLAN_RECOMPUTE] = PLAN_RECOMPUTE_NONE;
  const Flops found = flops_of (c.schedule);
  g_autoptr (PlanCase) keeping = test_case_of (c.model, c.cluster, &keeps);
  g_autoptr (PlanSchedule) schedule = lower (keeping, 0, _i);
  const Flops kept = flops_of (schedule);
  ck_assert_msg (kept.again == 0, "seed %d: %.0f of %.0f again in a plan that keeps all", _i,
                 kept.again, kept.all);
  ck_assert_msg (found.again == found.all - kept.all, "seed %d: %.0f again, not %.0f", _i,
                 found.again, found.all - kept.all);
  test_case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-lower");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  test_add_share (tcase, wide_schedules_pass_their_check, 600);
  test_add_share (tcase, wide_resting_memory_follows_the_plan, 300);
  test_add_share (tcase, wide_traffic_follows_the_strategy, 300);
  test_add_share (tcase, schedules_pass_their_check, 150);
  test_add_share (tcase, only_what_is_computed_again_is_said_to_be, 300);
  test_add_share (tcase, print_then_parse_is_identity, 60);
  test_add_share (tcase, every_alloc_is_freed, 100);
  test_add_share (tcase, all_ranks_issue_the_same_collectives, 60);
  test_add_share (tcase, traffic_follows_the_strategy, 150);
  test_add_share (tcase, layouts_hold_every_tensor_once, 150);
  test_add_share (tcase, buckets_travel_one_by_one, 160);
  tcase_add_loop_test (tcase, buckets_that_recur_are_folded, 0, 8);
  test_add_share (tcase, equal_keys_have_equal_schedules, 150);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
