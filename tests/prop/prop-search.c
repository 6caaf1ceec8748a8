/* SPDX-License-Identifier: Apache-2.0 */
/* The search finds what trying every plan finds; its bounds are never above the simulation. */
#include "config.h"

#include "advise/floor-work.h"
#include "advise/predict.h"
#include "advise/score.h"
#include "planner/plan/megatron-lacks.h"
#include "planner/plan/stages.h"
#include "planner/search/bound.h"
#include "planner/search/search.h"
#include "sim/fast/measure.h"
#include "sim/sim.h"
#include "tests/case.h"
#include "tests/prop/leanest.h"
#include "tests/prop/pipelines.h"
#include "tests/prop/random.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  AdviseInput input;
  SimAdjustments *errors;
  AdviseScorer *scorer;
} Case;

#define P_FITS 0.9
#define WHOLE 0.03   /* error of all memory */
#define PASSING 0.06 /* and of what does not stay between steps */
#define ERRORS "parameters errors\nmemory whole=0.03 passing=0.06 runs=1\n"

/* Memory that a plan needs to fit with a chance of P_FITS, by the ninth decile of the errors. */
static guint64
needed_bytes (const PlanMemory *memory)
{
  const double passing = (double)(memory->device - memory->allocated);
  const double scale = WHOLE * (double)memory->device + PASSING * passing;
  return memory->device + (guint64)(1.5332062740589438 * scale);
}

/* Scores a plan op by op, without the scorer's cache of schedules. The bound of a step by its
 * schedule is no longer than it. */
static void
simulate (const Case *c, const PlanCase *of, PlanScore *out)
{
  g_autoptr (GError) error = NULL;
  const guint n = (guint)of->plan.value[PLAN_PP];
  PlanSchedule *schedules[SIM_MAX_STAGES];
  SimCost *costs[SIM_MAX_STAGES] = { NULL };
  PlanTrace *traces[SIM_MAX_STAGES];
  for (guint i = 0; i < n; i++)
    {
      schedules[i] = test_lower (of, i * (guint)plan_cluster_devices (c->cluster) / n);
      costs[i] = advise_cost_of (&c->input, of, schedules[i], &error);
      ck_assert_msg (costs[i] != NULL, "%s", error ? error->message : "");
    }
  const SimPipeline pipeline = { (const PlanSchedule *const *)schedules, n };
  ck_assert (
      sim_run_stages (&pipeline, (const SimCost *const *)costs, of->stack, traces, NULL, &error));
  *out = (PlanScore){ .time_ns = traces[0]->step_ns };
  for (guint i = 0; i < n; i++)
    {
      const PlanMemory *memory = &traces[i]->memory;
      ck_assert (c->cluster->kind != PLAN_DEVICE_GPU || n > 1
                 || advise_floor_serial_ns (schedules[i], costs[i]) <= out->time_ns);
      if (memory->device > out->device_bytes)
        {
          out->device_bytes = memory->device;
          out->memory_bytes = needed_bytes (memory);
        }
      plan_trace_free (traces[i]);
      sim_cost_free (costs[i]);
      plan_schedule_free (schedules[i]);
    }
}

/* A small space: one node, short models. */
static PlanSpace *
small_space (const Case *c, int seed, guint allow)
{
  gboolean pinned[PLAN_N_FIELDS] = { FALSE };
  Plan base;
  plan_init (&base);
  if (seed % 4 == 3) /* the loss in pieces is among the extras */
    {
      base.value[PLAN_STACK] = PLAN_STACK_NATIVE;
      allow |= 1u << PLAN_ALLOW_HAZARDS; /* some models are not run on GPUs */
    }
  base.value[PLAN_GBS] = 16;
  base.value[PLAN_SEQ] = 128;
  if (seed % 5 == 0 && c->model->positions != PLAN_POSITIONS_LEARNED)
    base.value[PLAN_SEQ] = 8192; /* where it is long it may be cut */
  pinned[PLAN_GBS] = pinned[PLAN_SEQ] = TRUE;
  pinned[PLAN_COMM_UNIT] = seed % 4 != 0;
  pinned[PLAN_NCCL_UB] = seed % 4 == 0;
  pinned[PLAN_REDUCE_ALGO] = seed % 3 == 0;
  if (seed % 3)
    pinned[PLAN_TP] = TRUE;
  PlanSpace *space = plan_space_new (c->model, c->cluster, &base, pinned, allow);
  /* Some extras at a time. */
  static const PlanField extras[]
      = { PLAN_CUDA_GRAPH, PLAN_OFFLOAD_OPTIMIZER, PLAN_OFFLOAD_LAYERS };
  const gint64 on[] = { 0, seed % 4 == 1 ? PLAN_CUDA_GRAPH_ON : 0 };
  for (guint i = 0; i < G_N_ELEMENTS (extras); i++)
    if (seed % 3 != (int)i)
      ck_assert (plan_space_restrict (space, extras[i], on, i == 0 && seed % 4 == 1 ? 2 : 1, NULL));
  const gint64 mbs[] = { 1, 2 };
  ck_assert (plan_space_restrict (space, PLAN_MBS, mbs, 2, NULL));
  const gint64 recompute[]
      = { seed % 4 ? PLAN_RECOMPUTE_NONE : PLAN_RECOMPUTE_SELECTIVE, PLAN_RECOMPUTE_FULL };
  ck_assert (plan_space_restrict (space, PLAN_RECOMPUTE, recompute, 2, NULL));
  return space;
}

#define FIRST_OPEN 6 /* the number of the first space that is not small */
#define FIRST_STACK 14
#define FIRST_EXPERTS 18
#define FIRST_QUANTISED 21
#define N_SPACES 24
#define EVERY_CLASS ((1u << PLAN_N_ALLOW) - 1)

/* A small space with every class of choices: some low-precision recipes, some offloading. */
static PlanSpace *
open_space (const Case *c, int seed)
{
  static const PlanField extras[]
      = { PLAN_CUDA_GRAPH, PLAN_OFFLOAD_OPTIMIZER, PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES };
  static const PlanField fixed[] = { PLAN_GBS, PLAN_SEQ, PLAN_COMM_UNIT, PLAN_TP, PLAN_AG_GROUP };
  const gint64 off = 0, mbs = 1 + seed % 2;
  const gint64 recipes[] = { PLAN_COMPUTE_BF16, PLAN_COMPUTE_FP8_DELAYED + seed % 3 };
  const gint64 strategies[] = { PLAN_STRATEGY_OPTIM_GRADS_PARAMS, seed % 3 };
  const gint64 recompute[] = { PLAN_RECOMPUTE_NONE, PLAN_RECOMPUTE_SELECTIVE };
  gboolean pinned[PLAN_N_FIELDS] = { FALSE };
  Plan base;
  plan_init (&base);
  base.value[PLAN_GBS] = 16;
  base.value[PLAN_SEQ] = 128;
  for (guint i = 0; i < G_N_ELEMENTS (fixed); i++)
    pinned[fixed[i]] = TRUE;
  pinned[PLAN_NCCL_UB] = seed % 2;
  pinned[PLAN_DOUBLE_BUFFER] = seed % 2 == 0;
  PlanSpace *space = plan_space_new (c->model, c->cluster, &base, pinned, EVERY_CLASS);
  for (guint i = 0; i < G_N_ELEMENTS (extras); i++)
    if (seed % 4 != (int)i)
      ck_assert (plan_space_restrict (space, extras[i], &off, 1, NULL));
  ck_assert (plan_space_restrict (space, PLAN_MBS, &mbs, 1, NULL));
  ck_assert (plan_space_restrict (space, PLAN_COMPUTE, recipes, 2, NULL));
  ck_assert (plan_space_restrict (space, PLAN_STRATEGY, strategies, 2, NULL));
  ck_assert (plan_space_restrict (space, PLAN_RECOMPUTE, recompute, 1 + (seed % 4 < 2), NULL));
  return space;
}

/* A small space of each other stack: all that is searched for it, but for some sizes. */
static PlanSpace *
stack_space (const Case *c, int seed)
{
  static const gint64 stacks[]
      = { PLAN_STACK_MEGATRON, PLAN_STACK_FSDP2, PLAN_STACK_FSDP1, PLAN_STACK_NANOTRON };
  const gint64 mbs[] = { 1, 2 }, recompute[] = { PLAN_RECOMPUTE_NONE, PLAN_RECOMPUTE_FULL };
  gboolean pinned[PLAN_N_FIELDS] = { FALSE };
  Plan base;
  plan_init (&base);
  base.value[PLAN_STACK] = stacks[seed % (int)G_N_ELEMENTS (stacks)];
  base.value[PLAN_GBS] = 16;
  base.value[PLAN_SEQ] = 128;
  pinned[PLAN_STACK] = pinned[PLAN_GBS] = pinned[PLAN_SEQ] = TRUE;
  PlanSpace *space = plan_space_new (c->model, c->cluster, &base, pinned,
                                     1u << PLAN_ALLOW_MIXED | 1u << PLAN_ALLOW_MOMENTS);
  ck_assert (plan_space_restrict (space, PLAN_MBS, mbs, 2, NULL));
  ck_assert (plan_space_restrict (space, PLAN_RECOMPUTE, recompute, 2, NULL));
  return space;
}

/* A small space of a model with experts: two degrees, and what can be recomputed of them. */
static PlanSpace *
expert_space (const Case *c, int seed)
{
  static const gint64 stacks[]
      = { PLAN_STACK_MEGATRON_FSDP, PLAN_STACK_MEGATRON, PLAN_STACK_FSDP2 };
  const gint64 one = 1, mbs[] = { 1, 2 }, ep[] = { 1, 4 };
  gboolean pinned[PLAN_N_FIELDS] = { FALSE };
  Plan base;
  plan_init (&base);
  base.value[PLAN_STACK] = stacks[seed % (int)G_N_ELEMENTS (stacks)];
  base.value[PLAN_GBS] = 32;
  base.value[PLAN_SEQ] = 128;
  if (seed < FIRST_QUANTISED && (seed % 6 == 4 || seed % 6 == 3)) /* megatron, megatron-fsdp */
    base.value[PLAN_EP_OVERLAP] = PLAN_EP_OVERLAP_ON;
  if (seed >= FIRST_QUANTISED && seed % 3 < 2)
    {
      base.value[PLAN_COMPUTE] = PLAN_COMPUTE_FP8_TENSORWISE;
      base.value[PLAN_PARAM_GATHER] = PLAN_PARAM_GATHER_FP8;
    }
  pinned[PLAN_STACK] = pinned[PLAN_GBS] = pinned[PLAN_SEQ] = pinned[PLAN_COMM_UNIT] = TRUE;
  PlanSpace *space
      = plan_space_new (c->model, c->cluster, &base, pinned, seed % 2 ? 1u << PLAN_ALLOW_MIXED : 0);
  const gint64 pools[] = { PLAN_DOUBLE_BUFFER_OFF, PLAN_DOUBLE_BUFFER_ON };
  if (seed >= FIRST_QUANTISED && seed % 3 == 0) /* megatron-fsdp */
    ck_assert (plan_space_restrict (space, PLAN_DOUBLE_BUFFER, pools, 2, NULL));
  ck_assert (plan_space_restrict (space, PLAN_MBS, mbs, 2, NULL));
  ck_assert (plan_space_restrict (space, PLAN_CP, &one, 1, NULL));
  ck_assert (plan_space_restrict (space, PLAN_EP, ep, 2, NULL));
  ck_assert (plan_space_restrict (space, PLAN_ETP, mbs, 2, NULL));
  ck_assert (plan_space_restrict (space, PLAN_TP, mbs, 2, NULL));
  return space;
}

static void
case_init_model (Case *c, int seed, PlanModel *model)
{
  c->model = model;
  c->cluster = plan_cluster_new (seed % 10 == 9 ? "dgx-b200:1"
                                 : seed % 2     ? "dgx-h100:1"
                                                : "dgx-h100:2",
                                 NULL);
  c->errors = sim_adjustments_parse (ERRORS, "errors", NULL);
  c->input = (AdviseInput){ .model = c->model, .cluster = c->cluster, .adjustments = c->errors };
  c->scorer = advise_scorer_new (&c->input, P_FITS);
}

static void
case_init (Case *c, int seed)
{
  case_init_model (c, seed, random_wide_model ((guint)seed));
}

static void
case_clear (Case *c)
{
  advise_scorer_free (c->scorer);
  sim_adjustments_free (c->errors);
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}

/* plan_resolve_block answers alike for all plans of a block, and forbids no legal plan; where it
 * allows them, plan_resolve_in_block forbids the others. */
START_TEST (blocks_are_forbidden_as_a_whole)
{
  static const gint64 stacks[]
      = { PLAN_STACK_MEGATRON_FSDP, PLAN_STACK_MEGATRON, PLAN_STACK_FSDP2, PLAN_STACK_NATIVE };
  Case c;
  guint64 n = 0;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gboolean pinned[PLAN_N_FIELDS] = { FALSE };
  Plan base, plan, resolved, in_block;
  case_init_model (&c, _i,
                   _i % 3 == 2 ? random_expert_model ((guint)_i) : random_wide_model ((guint)_i));
  plan_init (&base);
  base.value[PLAN_GBS] = 64;
  base.value[PLAN_STACK] = stacks[_i % (int)G_N_ELEMENTS (stacks)];
  pinned[PLAN_STACK] = TRUE;
  g_autoptr (PlanSpace) space
      = plan_space_new (c.model, c.cluster, &base, pinned, (1u << PLAN_N_ALLOW) - 1);
  const guint64 size = plan_space_block_size (space), blocks = plan_space_size (space) / size;
  for (guint i = 0; i < 200; i++)
    {
      const guint64 first = (guint64)g_rand_int_range (rand, 0, (gint32)blocks) * size;
      plan_space_at (space, first + (guint64)g_rand_int_range (rand, 0, (gint32)size), &plan);
      const gboolean may = plan_resolve_block (&plan, c.model, c.cluster);
      for (guint64 point = first; point < first + size; point++)
        {
          if (!plan_space_at (space, point, &plan))
            continue;
          ck_assert_int_eq (plan_resolve_block (&plan, c.model, c.cluster), may);
          const gboolean is_legal = plan_resolve (&plan, c.model, c.cluster, &resolved, NULL);
          ck_assert_int_eq (is_legal,
                            may && plan_resolve_in_block (&plan, c.model, c.cluster, &in_block));
          ck_assert (!is_legal || memcmp (&resolved, &in_block, sizeof resolved) == 0);
        }
      n += !may;
    }
  ck_assert (n > 0
             || plan_megatron_lacks (c.model, 0)); /* such models have fewer choices to forbid */
  case_clear (&c);
}
END_TEST

#define SLIM ((guint64)1 << 63) /* beside the number of a point: of its slim plan */
#define SCORE(found, i) g_array_index (found, PlanFound, i).score

static gboolean
try_plan (const Case *c, const PlanSpace *space, guint64 point, const Plan *plan, GArray *all)
{
  PlanFound found = { .point = point };
  g_autoptr (PlanCase) of = plan_case_new (c->model, c->cluster, plan, NULL, NULL);
  if (!of || !plan_space_admits (space, &of->plan, of))
    return FALSE;
  simulate (c, of, &found.score);
  found.plan = of->plan;
  g_array_append_val (all, found);
  return TRUE;
}

/* Every legal plan of a space, scored, each with its slim plan behind it. */
static GArray *
try_everything (const Case *c, const PlanSpace *space)
{
  GArray *all = g_array_new (FALSE, FALSE, sizeof (PlanFound));
  Plan plan, slim;
  for (guint64 point = 0; point < plan_space_size (space); point++)
    if (plan_space_at (space, point, &plan) && try_plan (c, space, point, &plan, all)
        && plan_space_slim (space, &plan, &slim))
      ck_assert (try_plan (c, space, point | SLIM, &slim, all));
  return all;
}

/* Removes what does not fit, and slim plans of those that do. */
static void
leave_fitting (GArray *all, guint64 memory_bytes)
{
  for (guint i = all->len; i-- > 0;)
    {
      const gboolean is_slim = (g_array_index (all, PlanFound, i).point & SLIM) != 0;
      if (SCORE (all, i).memory_bytes > memory_bytes
          || (is_slim && SCORE (all, i - 1).memory_bytes <= memory_bytes))
        g_array_remove_index (all, i);
    }
}

/* Leaves only points of plain blocks, which come first. */
static void
leave_plain (GArray *found, const PlanSpace *space)
{
  const guint64 end = plan_space_n_plain_blocks (space) * plan_space_block_size (space);
  for (guint i = found->len; i-- > 0;)
    if (g_array_index (found, PlanFound, i).point >= end)
      g_array_remove_index (found, i);
}

static gint64
least (const GArray *found, gboolean is_time)
{
  gint64 least = G_MAXINT64;
  for (guint i = 0; i < found->len; i++)
    least = MIN (least, is_time ? SCORE (found, i).time_ns : (gint64)SCORE (found, i).memory_bytes);
  return least;
}

/* Whether something in `all` beats a score in memory and time. */
static gboolean
is_dominated (const GArray *all, const PlanScore *score_of)
{
  for (guint i = 0; i < all->len; i++)
    {
      const PlanScore *s = &SCORE (all, i);
      if (s->time_ns <= score_of->time_ns && s->memory_bytes <= score_of->memory_bytes
          && (s->time_ns < score_of->time_ns || s->memory_bytes < score_of->memory_bytes))
        return TRUE;
    }
  return FALSE;
}

static gboolean
has_virtual_stages (const GArray *found)
{
  for (guint i = 0; i < found->len; i++)
    if (g_array_index (found, PlanFound, i).plan.value[PLAN_VPP] > 1)
      return TRUE;
  return FALSE;
}

START_TEST (the_search_equals_trying_everything)
{
  Case c;
  /* A model that every stack of its space can run. */
  case_init_model (&c, _i,
                   _i < FIRST_STACK     ? random_wide_model ((guint)_i)
                   : _i < FIRST_EXPERTS ? plan_model_new ("llama-tiny", NULL)
                                        : random_expert_model ((guint)_i));
  g_autoptr (PlanSpace) space = _i < FIRST_OPEN
                                    ? small_space (&c, _i, _i % 2 ? 0 : 1u << PLAN_ALLOW_MIXED)
                                : _i < FIRST_STACK   ? open_space (&c, _i)
                                : _i < FIRST_EXPERTS ? stack_space (&c, _i)
                                                     : expert_space (&c, _i);
  g_auto (PlanSearchResult) result = { 0 };
  g_autoptr (GArray) all = try_everything (&c, space);
  ck_assert_uint_gt (all->len, 0);
  ck_assert (g_array_index (all, PlanFound, 0).plan.value[PLAN_STACK] != PLAN_STACK_MEGATRON
             || c.model->experts > 0 || has_virtual_stages (all));
  const guint64 memory_bytes = _i % 6 == 5 ? (guint64)least (all, FALSE)
                               : _i % 3    ? SCORE (all, all->len / 2).memory_bytes
                                           : G_MAXUINT64;
  leave_fitting (all, memory_bytes);
  const PlanSearch search = { .model = c.model,
                              .cluster = c.cluster,
                              .space = space,
                              .memory_bytes = memory_bytes,
                              .best = 3,
                              .threads = 2,
                              .front = G_MAXDOUBLE,
                              .score = advise_scorer_score,
                              .floor = advise_scorer_floor,
                              .plan_floor = advise_scorer_plan_floor,
                              .user_data = c.scorer };
  plan_search_run (&search, &result);
  ck_assert_uint_eq (result.total,
                     result.by_rule + result.by_bound + result.by_memory + result.by_simulation);
  ck_assert (result.is_whole);
  ck_assert_int_eq (least (result.found, TRUE), least (all, TRUE));
  leave_plain (all, space);
  /* No plan of the search's front is beaten by any plan of the space; and each plan of the space is
   * found, has an equal there, or is beaten. */
  g_autoptr (GArray) front = plan_search_front (&result);
  for (guint i = 0; i < front->len; i++)
    {
      const PlanScore *score = &SCORE (result.found, g_array_index (front, guint, i));
      ck_assert (is_dominated (result.found, score) || !is_dominated (all, score));
    }
  for (guint i = 0; i < all->len; i++)
    {
      const PlanFound *f = &g_array_index (all, PlanFound, i);
      gboolean is_there = is_dominated (all, &f->score) || is_dominated (result.found, &f->score);
      for (guint j = 0; j < result.found->len && !is_there; j++)
        is_there = memcmp (&SCORE (result.found, j), &f->score, sizeof f->score) == 0;
      ck_assert_msg (is_there, "seed %d: point %u of the front was left out", _i, (guint)f->point);
    }
  case_clear (&c);
}
END_TEST

START_TEST (bounds_are_never_above_the_simulation)
{
  Case c;
  PlanScore found;
  const gboolean has_experts = _i % 5 == 4;
  case_init_model (&c, _i,
                   has_experts ? random_expert_model ((guint)_i) : random_wide_model ((guint)_i));
  g_autoptr (PlanCase) of = has_experts ? random_expert_case ((guint)_i, c.model, c.cluster)
                                        : random_wide_case ((guint)_i, c.model, c.cluster);
  const Plan *plan = &of->plan;
  simulate (&c, of, &found);
  g_autofree char *text = plan_print (plan);
  const guint64 memory = plan_bound_memory (of);
  ck_assert_msg (memory <= found.device_bytes, "seed %d: at least %lu, simulated %lu\n%s", _i,
                 (unsigned long)memory, (unsigned long)found.device_bytes, text);
  ck_assert_msg (plan_bound_time_ns (c.model, c.cluster, plan) <= found.time_ns, "seed %d:\n%s", _i,
                 text);
  const gint64 floor_ns = advise_scorer_floor (plan, _i % 2 ? 0 : G_MAXINT64, c.scorer);
  ck_assert_msg (floor_ns <= found.time_ns, "seed %d: at least %ld, simulated %ld\n%s", _i,
                 (long)floor_ns, (long)found.time_ns, text);
  const gint64 plan_floor_ns = advise_scorer_plan_floor (plan, G_MAXINT64, c.scorer);
  ck_assert_msg (plan_floor_ns <= found.time_ns, "seed %d: at least %ld, simulated %ld\n%s", _i,
                 (long)plan_floor_ns, (long)found.time_ns, text);
  ck_assert_msg (plan_floor_ns > 0 || plan->value[PLAN_TASK] != PLAN_TASK_TRAIN
                     || plan->value[PLAN_GRAD_SYNC] == PLAN_GRAD_SYNC_LAST,
                 "seed %d: no bound\n%s", _i, text);
  Plan distilled = *plan;
  plan_bound_distil (&distilled);
  g_autoptr (PlanCase) alike = test_case_of (c.model, c.cluster, &distilled);
  ck_assert_uint_eq (plan_bound_memory_of_loss (alike), plan_bound_memory_of_loss (of));
  check_leanest (of, found.device_bytes);
  case_clear (&c);
}
END_TEST

/* The same of pipelines; and the bytes of their communicators are those of their schedules. */
START_TEST (bounds_of_pipelines_hold)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, _i % 3 != 0);
  const Case c = { .model = p.model,
                   .cluster = p.cluster,
                   .input = { .model = p.model, .cluster = p.cluster } };
  AdviseScorer *scorer = advise_scorer_new (&c.input, P_FITS);
  PlanScore found;
  simulate (&c, p.of, &found);
  g_autofree char *text = plan_print (&p.of->plan);
  const guint64 memory = plan_bound_memory (p.of);
  ck_assert_msg (memory <= found.device_bytes, "seed %d: at least %lu, simulated %lu\n%s", _i,
                 (unsigned long)memory, (unsigned long)found.device_bytes, text);
  check_leanest (p.of, found.device_bytes);
  const gint64 floor_ns = advise_scorer_floor (&p.of->plan, _i % 2 ? 0 : G_MAXINT64, scorer);
  const gint64 plan_floor_ns = advise_scorer_plan_floor (&p.of->plan, G_MAXINT64, scorer);
  ck_assert_msg (MAX (floor_ns, plan_floor_ns) <= found.time_ns,
                 "seed %d: at least %ld and %ld, simulated %ld\n%s", _i, (long)floor_ns,
                 (long)plan_floor_ns, (long)found.time_ns, text);
  ck_assert_int_le (plan_bound_time_ns (p.model, p.cluster, &p.of->plan), found.time_ns);
  ck_assert_uint_eq (plan_bound_communicator_bytes (p.of),
                     plan_stack_outside_bytes (p.of->stack, p.schedules[0])
                         - p.of->stack->memory.context_bytes);
  PlanScore scored;
  ck_assert (advise_scorer_score (p.of, NULL, scorer, &scored));
  ck_assert_int_eq (scored.time_ns, found.time_ns);
  advise_scorer_free (scorer);
}
END_TEST

/* The time bound holds where GEMMs take longer than their launches, and communication slows them.
 */
START_TEST (bounds_of_plans_hold_where_compute_is_slowed)
{
  static const char *const models[] = {
    "layers=6,hidden=4096,ffn=14336,heads=32,kv_heads=8,head_dim=128,vocab=32000,max_seq=8192",
    "layers=9,hidden=8192,ffn=28672,heads=64,kv_heads=8,head_dim=128,vocab=128256,max_seq=8192",
    "layers=3,hidden=2048,ffn=8192,heads=32,kv_heads=8,head_dim=64,vocab=50304,max_seq=8192",
  };
  const guint seed = (guint)_i;
  Case c = { 0 };
  c.model = plan_model_new (models[seed % G_N_ELEMENTS (models)], NULL);
  c.cluster = plan_cluster_new (seed % 4 == 0   ? "dgx-h100:1"
                                : seed % 4 == 1 ? "dgx-h100:2"
                                : seed % 4 == 2 ? "dgx-a100:1"
                                                : "dgx-b200:4",
                                NULL);
  c.input = (AdviseInput){ .model = c.model, .cluster = c.cluster };
  c.scorer = advise_scorer_new (&c.input, P_FITS);
  g_autoptr (PlanCase) random = random_wide_case (seed, c.model, c.cluster);
  Plan plan = random->plan;
  plan.value[PLAN_SEQ] *= 4 << seed % 4;
  plan.value[PLAN_GBS] *= 1 + seed % 3;
  g_autoptr (PlanCase) of = test_case_of (c.model, c.cluster, &plan);
  SimSummary found[SIM_MAX_STAGES];
  ck_assert (advise_measure_case (&c.input, of, found, NULL));
  const gint64 floor_ns = advise_scorer_plan_floor (&of->plan, G_MAXINT64, c.scorer);
  g_autofree char *text = plan_print (&of->plan);
  ck_assert_msg (floor_ns <= found->step_ns, "seed %d: at least %ld, simulated %ld\n%s", _i,
                 (long)floor_ns, (long)found->step_ns, text);
  case_clear (&c);
}
END_TEST

/* Bounds hold where exchanges of tensor parallelism run beside GEMMs, whole or in pieces. */
START_TEST (bounds_hold_where_sequences_travel_beside_products)
{
  static const char *const words[]
      = { "stack=megatron-fsdp", "stack=megatron strategy=optim",
          "stack=megatron strategy=optim tp_overlap=ub", "stack=native tp_overlap=async" };
  Case c = { 0 };
  c.model = plan_model_new ("layers=4,hidden=4096,ffn=14336,heads=32,kv_heads=8,head_dim=128,"
                            "vocab=32000,max_seq=8192",
                            NULL);
  c.cluster = plan_cluster_new ("dgx-h100:1", NULL);
  c.input = (AdviseInput){ .model = c.model, .cluster = c.cluster };
  c.scorer = advise_scorer_new (&c.input, P_FITS);
  g_autofree char *all = g_strconcat ("gbs=8 seq=8192 tp=8 ", words[_i], NULL);
  g_autoptr (PlanCase) of = test_case (c.model, c.cluster, all);
  SimSummary found[SIM_MAX_STAGES];
  ck_assert (advise_measure_case (&c.input, of, found, NULL));
  const gint64 floor_ns = advise_scorer_floor (&of->plan, G_MAXINT64, c.scorer);
  const gint64 plan_floor_ns = advise_scorer_plan_floor (&of->plan, G_MAXINT64, c.scorer);
  ck_assert_msg (MAX (floor_ns, plan_floor_ns) <= found->step_ns, "%s: at least %ld, simulated %ld",
                 words[_i], (long)MAX (floor_ns, plan_floor_ns), (long)found->step_ns);
  ck_assert_int_gt (floor_ns, found->step_ns / 2);
  case_clear (&c);
}
END_TEST

static char *
describe (const PlanSearchResult *result)
{
  g_autoptr (GArray) front = plan_search_front (result);
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < front->len; i++)
    {
      const PlanFound *f
          = &g_array_index (result->found, PlanFound, g_array_index (front, guint, i));
      g_string_append_printf (text, "%lu: %ld ns, %lu bytes\n", (unsigned long)f->point,
                              (long)f->score.time_ns, (unsigned long)f->score.memory_bytes);
    }
  return g_string_free (text, FALSE);
}

/* Bounds and threads decide how much is simulated, and nothing else. */
START_TEST (bounds_change_no_answer)
{
  Case c;
  case_init (&c, _i);
  g_autoptr (PlanSpace) space = small_space (&c, _i, 1u << PLAN_ALLOW_MIXED);
  PlanSearch search = { .model = c.model,
                        .cluster = c.cluster,
                        .space = space,
                        .memory_bytes = G_MAXUINT64,
                        .best = 1,
                        .threads = 1,
                        .front = 2,
                        .score = advise_scorer_score,
                        .user_data = c.scorer };
  g_auto (PlanSearchResult) unbounded = { 0 }, bounded = { 0 };
  plan_search_run (&search, &unbounded);
  search.floor = advise_scorer_floor;
  search.plan_floor = advise_scorer_plan_floor;
  search.threads = 3;
  plan_search_run (&search, &bounded);
  g_autofree char *expected = describe (&unbounded), *found = describe (&bounded);
  ck_assert_str_eq (found, expected);
  case_clear (&c);
}
END_TEST

static gboolean
score_memory (const PlanCase *of, PlanInquiry *inquiry, gpointer data, PlanScore *out)
{
  if (!advise_scorer_score (of, inquiry, data, out))
    return FALSE;
  out->time_ns = (gint64)out->memory_bytes;
  return TRUE;
}

START_TEST (the_least_memory_is_found)
{
  const int seed = 1 + _i;
  Case c;
  case_init (&c, seed);
  g_autoptr (PlanSpace) space = small_space (&c, seed, 0);
  g_autoptr (GArray) all = try_everything (&c, space);
  g_auto (PlanSearchResult) result = { 0 };
  const PlanSearch search = { .model = c.model,
                              .cluster = c.cluster,
                              .space = space,
                              .memory_bytes = G_MAXUINT64,
                              .best = 1,
                              .threads = 2,
                              .minimizes_memory = TRUE,
                              .score = score_memory,
                              .user_data = c.scorer };
  plan_search_run (&search, &result);
  ck_assert_uint_gt (result.found->len, 0);
  ck_assert_int_eq (least (result.found, TRUE), least (all, FALSE));
  case_clear (&c);
}
END_TEST

/* A plan has a score within just the time and memory that it needs and none within a nanosecond or
 * a byte less, whether it was scored before or not. */
START_TEST (scores_end_at_their_limits)
{
  Case c;
  case_init (&c, _i);
  g_autoptr (AdviseScorer) scorer = advise_scorer_new (&c.input, P_FITS);
  for (guint i = 0; i < 10; i++)
    {
      g_autoptr (PlanCase) of = random_wide_case ((guint)_i * 10 + i, c.model, c.cluster);
      g_autoptr (AdviseScorer) fresh = advise_scorer_new (&c.input, P_FITS);
      PlanScore found, expected;
      ck_assert (advise_scorer_score (of, NULL, fresh, &expected));
      const gint64 ns = expected.time_ns;
      const guint64 bytes = expected.memory_bytes;
      ck_assert (!advise_scorer_score_within (scorer, of, G_MAXINT64, bytes - 1, &found));
      ck_assert (!advise_scorer_score_within (scorer, of, ns - 1, G_MAXUINT64, &found));
      ck_assert (advise_scorer_score_within (scorer, of, ns, bytes, &found));
      ck_assert_int_eq (found.time_ns, expected.time_ns);
      ck_assert_uint_eq (found.memory_bytes, expected.memory_bytes);
    }
  case_clear (&c);
}
END_TEST

/* The scorer's cache mistakes no schedule for another: scores are those of the simulation. */
START_TEST (cached_scores_equal_the_simulation)
{
  Case c;
  case_init (&c, _i);
  for (guint i = 0; i < 20; i++)
    {
      g_autoptr (PlanCase) of = random_wide_case ((guint)_i * 20 + i % 10, c.model, c.cluster);
      PlanScore found, expected;
      ck_assert (advise_scorer_score (of, NULL, c.scorer, &found));
      simulate (&c, of, &expected);
      ck_assert_int_eq (found.time_ns, expected.time_ns);
      ck_assert_uint_eq (found.memory_bytes, expected.memory_bytes);
    }
  ck_assert_uint_le (advise_scorer_n_simulated (c.scorer), 10);
  case_clear (&c);
}
END_TEST

/* Plans for which the scorer shares a schedule have equal schedules; plans that differ in their
 * communicators alone have the same memory without these. */
START_TEST (shared_schedules_are_equal)
{
  Case c;
  case_init (&c, _i);
  g_autoptr (PlanCase) of = random_wide_case ((guint)_i, c.model, c.cluster);
  const PlanStack *stack = of->stack;
  Plan other = of->plan;
  plan_lower_distil_schedule (&other);
  g_autoptr (PlanCase) alike = test_case_of (c.model, c.cluster, &other);
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0), same = test_lower (alike, 0);
  g_autofree char *text = plan_schedule_print (schedule), *same_text = plan_schedule_print (same);
  ck_assert_str_eq (text, same_text);
  guint64 registered = 0;
  for (guint g = 0; g < plan_schedule_n_groups (schedule); g++)
    registered += plan_schedule_group (schedule, g)->registered_bytes;
  ck_assert_uint_eq (plan_bound_communicator_bytes (of) + registered,
                     plan_stack_outside_bytes (stack, schedule) - stack->memory.context_bytes);
  PlanScore found;
  simulate (&c, of, &found);
  ck_assert_uint_le (sim_measure_least_bytes (schedule, stack), found.device_bytes);
  other = of->plan;
  other.value[PLAN_AG_GROUP] = !other.value[PLAN_AG_GROUP];
  g_autoptr (PlanCase) apart = plan_case_new (c.model, c.cluster, &other, NULL, NULL);
  if (apart)
    {
      PlanScore beside;
      simulate (&c, apart, &beside);
      ck_assert_uint_eq (found.device_bytes - plan_bound_communicator_bytes (of),
                         beside.device_bytes - plan_bound_communicator_bytes (apart));
    }
  case_clear (&c);
}
END_TEST

/* Spaces have fused weight gradients alone, but for slim plans. */
START_TEST (fused_gradients_are_never_slower)
{
  Case c;
  case_init (&c, _i);
  g_autoptr (PlanCase) of = random_wide_case ((guint)_i, c.model, c.cluster);
  Plan plan = of->plan;
  plan.value[PLAN_GRAD_ACCUM_FUSION] = PLAN_GRAD_ACCUM_FUSION_ON;
  g_autoptr (PlanCase) fused = plan_case_new (c.model, c.cluster, &plan, NULL, NULL);
  PlanScore other, best = { 0 };
  simulate (&c, of, &other);
  if (fused)
    simulate (&c, fused, &best);
  ck_assert_msg (best.time_ns <= other.time_ns, "seed %d: %ld ns, else %ld", _i, (long)best.time_ns,
                 (long)other.time_ns);
  case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-search");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  test_add_runs (tcase, the_search_equals_trying_everything, N_SPACES);
  test_add_share (tcase, bounds_are_never_above_the_simulation, 180);
  test_add_share (tcase, bounds_of_pipelines_hold, 60);
  if (43 % test_share () != 0) /* its host runs ahead, so it is never left out */
    tcase_add_loop_test (tcase, bounds_of_pipelines_hold, 43, 44);
  test_add_share (tcase, bounds_of_plans_hold_where_compute_is_slowed, 200);
  tcase_add_loop_test (tcase, bounds_hold_where_sequences_travel_beside_products, 0, 4);
  test_add_runs (tcase, blocks_are_forbidden_as_a_whole, 12);
  test_add_runs (tcase, bounds_change_no_answer, 8);
  test_add_runs (tcase, the_least_memory_is_found, 8);
  test_add_runs (tcase, scores_end_at_their_limits, 20);
  test_add_runs (tcase, cached_scores_equal_the_simulation, 8);
  test_add_share (tcase, shared_schedules_are_equal, 100);
  test_add_runs (tcase, fused_gradients_are_never_slower, 60);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
