/* SPDX-License-Identifier: Apache-2.0 */
/* sim_measure, which jumps, against sim_run, which goes through every op. */
#include "config.h"

#include "sim/fast/measure.h"
#include "sim/sim.h"
#include "tests/case.h"
#include "tests/prop/random.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void
assert_same_memory (const PlanMemory *a, const PlanMemory *b, int seed)
{
  ck_assert_msg (a->allocated == b->allocated && a->max_allocated == b->max_allocated,
                 "seed %d: live bytes", seed);
  ck_assert_msg (a->reserved == b->reserved && a->device == b->device,
                 "seed %d: reserved %.0f %.0f", seed, (double)a->reserved, (double)b->reserved);
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    ck_assert_msg (a->by_category[c] == b->by_category[c] && a->resting[c] == b->resting[c],
                   "seed %d: %s", seed, plan_category_name ((PlanCategory)c));
  ck_assert_msg (a->peak_node == b->peak_node && a->peak_unit == b->peak_unit, "seed %d: peak",
                 seed);
}

/* What the ops of each node took, span by span. */
static void
assert_same_times (const PlanSchedule *schedule, const PlanTrace *trace, const gint64 *node_ns,
                   int seed)
{
  g_autofree gint64 *sums = g_new0 (gint64, plan_schedule_n_nodes (schedule));
  for (guint i = 0; i < trace->spans->len; i++)
    {
      const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, i);
      sums[span->node] += span->end_ns - span->start_ns;
    }
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    ck_assert_msg (sums[node] == node_ns[node],
                   "seed %d: the ops of node %u take %" G_GINT64_FORMAT ", not %" G_GINT64_FORMAT,
                   seed, node, node_ns[node], sums[node]);
}

static gboolean
is_of_loss (PlanOpKind kind, gboolean is_training)
{
  return kind == PLAN_OP_CROSS_ENTROPY_BWD || (kind == PLAN_OP_LOSS_GRAD && is_training);
}

static gboolean
is_training (const PlanSchedule *schedule)
{
  for (guint i = 0; i < plan_schedule_n_nodes (schedule); i++)
    if (plan_schedule_node (schedule, i)->kind == PLAN_OP_EMBED_BWD)
      return TRUE;
  return FALSE;
}

/* The part of a step that an op of kind `kind` is in: that of the op before, of kind `last`, unless
 * another part begins. */
static PlanPhase
phase_after (PlanPhase phase, PlanOpKind last, PlanOpKind kind, gboolean trains)
{
  if (is_of_loss (last, trains) && !is_of_loss (kind, trains))
    return PLAN_PHASE_BACKWARD;
  if (kind == PLAN_OP_LOAD || kind == PLAN_OP_EMBED || kind == PLAN_OP_CROSS_ENTROPY_BWD
      || kind == PLAN_OP_LOSS_GRAD)
    return PLAN_PHASE_LOSS;
  if (kind == PLAN_OP_EMBED_BWD || kind == PLAN_OP_POSITIONS_BWD)
    return PLAN_PHASE_BACKWARD_END;
  return kind == PLAN_OP_NORM_SQ || kind == PLAN_OP_CLIP ? PLAN_PHASE_OPTIMIZER : phase;
}

/* The fullest moment of each part of a step, sample by sample: what is taken between two ops is
 * for the second one. */
static void
assert_same_peaks (const PlanSchedule *schedule, const PlanTrace *trace, guint64 granule, int seed)
{
  const gboolean trains = is_training (schedule);
  gint64 live[PLAN_N_CATEGORIES], total = 0;
  guint64 peaks[PLAN_N_PHASES] = { 0 }, found[PLAN_N_PHASES];
  PlanPhase phase = PLAN_PHASE_LOSS;
  PlanOpKind last = PLAN_OP_LOAD;
  guint next = 0;
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    total += live[c] = (gint64)trace->memory.resting[c];
  for (guint i = 0; i <= trace->spans->len; i++)
    {
      if (i < trace->spans->len)
        {
          const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, i);
          const PlanOpKind kind = plan_schedule_node (schedule, span->node)->kind;
          phase = phase_after (phase, last, kind, trains);
          last = kind;
          peaks[phase] = MAX (peaks[phase], (guint64)total);
        }
      for (; next < trace->samples->len; next++)
        {
          const PlanMemorySample *s = &g_array_index (trace->samples, PlanMemorySample, next);
          if (s->span > i)
            break;
          total += s->live_bytes - live[s->category];
          live[s->category] = s->live_bytes;
          peaks[phase] = MAX (peaks[phase], (guint64)total);
        }
    }
  plan_memory_phase_peaks (&trace->memory, schedule, granule, found);
  for (guint p = 0; p < PLAN_N_PHASES; p++)
    ck_assert_msg (found[p] == peaks[p], "seed %d: %s peaks at %.0f, not %.0f", seed,
                   plan_phase_name ((PlanPhase)p), (double)found[p], (double)peaks[p]);
}

/* Returns the share of ops that was gone through; 0 where both refuse. */
static double
assert_same (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack, int seed)
{
  g_autoptr (GError) error = NULL, same = NULL;
  g_autoptr (SimWorkspace) workspace = sim_workspace_new (), alone = sim_workspace_new ();
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, stack, &error);
  SimSummary s;
  if (!trace)
    {
      ck_assert (!sim_measure (schedule, cost, stack, workspace, &s, &same));
      ck_assert_str_eq (error->message, same->message);
      return 0;
    }
  assert_same_peaks (schedule, trace, stack ? stack->memory.allocation_bytes : 1, seed);
  for (guint i = 0; i < 2; i++) /* a workspace that was used is as good as a new one */
    {
      ck_assert_msg (sim_measure (schedule, cost, stack, workspace, &s, &error), "seed %d: %s",
                     seed, error ? error->message : "");
      const gint64 pairs[][2] = {
        { s.step_ns, trace->step_ns },
        { s.compute_ns, trace->compute_ns },
        { s.exposed_tensor_ns, trace->exposed_tensor_ns },
        { s.exposed_copy_ns, trace->exposed_copy_ns },
        { s.exposed_gather_ns, trace->exposed_gather_ns },
        { s.exposed_reduce_ns, trace->exposed_reduce_ns },
        { s.host_ns, trace->host_ns },
        { s.idle_ns, trace->idle_ns },
      };
      for (guint p = 0; p < G_N_ELEMENTS (pairs); p++)
        ck_assert_msg (pairs[p][0] == pairs[p][1],
                       "seed %d: total %u is %" G_GINT64_FORMAT ", not %" G_GINT64_FORMAT, seed, p,
                       pairs[p][0], pairs[p][1]);
      assert_same_memory (&s.memory, &trace->memory, seed);
      assert_same_times (schedule, trace, sim_measure_node_ns (workspace), seed);
      /* A new workspace first, since `workspace` knows the time from the totals. */
      const gint64 step_ns = sim_measure_step (schedule, cost, i == 0 ? alone : workspace);
      ck_assert_msg (step_ns == trace->step_ns,
                     "seed %d: by itself %" G_GINT64_FORMAT ", not %" G_GINT64_FORMAT, seed,
                     step_ns, trace->step_ns);
    }
  return (double)s.n_walked / (double)MAX (s.n_ops, 1);
}

/* Ops of a long schedule take a nanosecond per element, or a few times that. */
static SimCost *
cost_of_long (const PlanSchedule *schedule, GRand *rand, gboolean is_serial)
{
  g_autoptr (GError) error = NULL;
  PlanStack stack = { .memory.allocation_bytes = 1 };
  SimParams params = { .id = "test" };
  for (PlanLaunch launch = 0; launch < PLAN_N_LAUNCHES; launch++)
    stack.host.launch_ns[launch] = g_rand_int_range (rand, 0, 30);
  for (SimParam p = 0; p < SIM_N_PARAMS; p++)
    params.value[p] = strcmp (sim_param_unit (p), "ns") == 0 ? 0 : 1;
  params.value[SIM_PARAM_KERNEL_NS] = g_rand_int_range (rand, 0, 2);
  const PlanCluster cluster = { .name = (char *)"test",
                                .kind = is_serial ? PLAN_DEVICE_CPU : PLAN_DEVICE_GPU,
                                .nodes = 1,
                                .devices_per_node = 4,
                                .memory_bytes_per_s = 1e9 / g_rand_int_range (rand, 1, 4),
                                .link_bytes_per_s = 1e9 / g_rand_int_range (rand, 1, 4) };
  const SimCostInput input
      = { .schedule = schedule, .cluster = &cluster, .stack = &stack, .params = &params };
  SimCost *cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  return cost;
}

START_TEST (any_schedule)
{
  static const PlanStack cache
      = { .memory.allocation_bytes = 512, .memory.allocator = PLAN_ALLOCATOR_CACHING };
  static const PlanStack waits = { .memory.allocation_bytes = 512,
                                   .memory.allocator = PLAN_ALLOCATOR_CACHING,
                                   .memory.streams = PLAN_STREAMS_RECORDED };
  static const PlanStack arena = { .memory.allocation_bytes = 256, .memory.context_bytes = 7 };
  static const PlanStack *const stacks[] = { &cache, &cache, &waits, &arena, NULL };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanSchedule) schedule = random_long_schedule (_i);
  g_autoptr (SimCost) cost = cost_of_long (schedule, rand, _i % 16 == 0);
  if (_i % 3)
    random_loads (cost, schedule, (guint32)_i);
  assert_same (schedule, cost, stacks[_i % 5], _i);
}
END_TEST

/* Rates as some cluster might have them. */
static SimCost *
cost_of_case (const PlanCase *of, const PlanSchedule *schedule, GRand *rand)
{
  g_autoptr (GError) error = NULL;
  SimParams params = *sim_params_default (of->cluster);
  params.value[SIM_PARAM_KERNEL_NS] = g_rand_int_range (rand, 0, 20000);
  params.value[SIM_PARAM_RING_SHARE] *= g_rand_double_range (rand, 0.001, 1);
  params.value[SIM_PARAM_PRODUCT_BF16] *= g_rand_double_range (rand, 0.001, 1);
  SimCostInput input = sim_cost_input (of, schedule);
  input.params = &params;
  SimCost *cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  return cost;
}

/* A step of a plan computes for as long as its ops do. */
static void
assert_all_compute (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
                    int seed)
{
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  SimSummary s;
  gint64 compute_ns = 0;
  if (!sim_measure (schedule, cost, stack, workspace, &s, NULL))
    return;
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    if (plan_schedule_node (schedule, node)->stream == PLAN_STREAM_COMPUTE)
      compute_ns += sim_measure_node_ns (workspace)[node];
  ck_assert_msg (compute_ns == s.compute_ns,
                 "seed %d: ops compute for %" G_GINT64_FORMAT ", the step for %" G_GINT64_FORMAT,
                 seed, compute_ns, s.compute_ns);
}

/* A plan as search meets it: any fields, any rates. */
static void
assert_same_plan (const PlanCase *of, int seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)seed);
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  g_autoptr (SimCost) cost = cost_of_case (of, schedule, rand);
  assert_same (schedule, cost, of->stack, seed);
  assert_all_compute (schedule, cost, of->stack, seed);
}

START_TEST (any_plan)
{
  g_autoptr (PlanModel) model = random_model (_i);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (_i);
  g_autoptr (PlanCase) of = random_case (_i, model, cluster, _i % 2 ? "native" : "megatron-fsdp");
  assert_same_plan (of, _i);
}
END_TEST

START_TEST (any_wide_plan)
{
  g_autoptr (PlanModel) model = random_wide_model (_i);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (_i);
  g_autoptr (PlanCase) of = random_wide_case (_i, model, cluster);
  assert_same_plan (of, _i);
}
END_TEST

/* What a search asks of a plan. */
typedef struct
{
  gint64 step_ns;
  guint64 bytes; /* 0: refused */
  gboolean is_settled;
} Score;

static Score
score_of (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
          SimWorkspace *workspace)
{
  Score score = { .step_ns = sim_measure_step (schedule, cost, workspace) };
  if (!sim_measure_device_bytes (schedule, cost, stack, G_MAXUINT64, workspace, &score.bytes,
                                 &score.is_settled, NULL))
    score.bytes = 0;
  return score;
}

#define KINDS 3 /* of plans, and of costs for each */

/* Whatever one workspace was used for before, it finds what a new one does. */
START_TEST (one_after_the_other)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanModel) model = random_model (_i);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (_i);
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  PlanCase *cases[KINDS];
  PlanSchedule *schedules[KINDS];
  SimCost *costs[KINDS][KINDS];
  for (guint i = 0; i < KINDS; i++)
    {
      cases[i]
          = random_case (_i * KINDS + (int)i, model, cluster, _i % 2 ? "native" : "megatron-fsdp");
      schedules[i] = test_lower (cases[i], 0);
      for (guint k = 0; k < KINDS; k++)
        costs[i][k] = cost_of_case (cases[i], schedules[i], rand);
    }
  for (guint n = 0; n < 20; n++)
    {
      const guint i = (guint)g_rand_int_range (rand, 0, KINDS);
      const SimCost *cost = costs[i][g_rand_int_range (rand, 0, KINDS)];
      g_autoptr (SimWorkspace) new = sim_workspace_new ();
      SimSummary summary;
      if (g_rand_int_range (rand, 0, 4) == 0)
        sim_measure (schedules[i], cost, cases[i]->stack, workspace, &summary, NULL);
      const Score used = score_of (schedules[i], cost, cases[i]->stack, workspace);
      const Score fresh = score_of (schedules[i], cost, cases[i]->stack, new);
      ck_assert_msg (used.step_ns == fresh.step_ns && used.bytes == fresh.bytes
                         && used.is_settled == fresh.is_settled,
                     "seed %d, plan %u", _i, n);
    }
  for (guint i = 0; i < KINDS; i++)
    {
      for (guint k = 0; k < KINDS; k++)
        sim_cost_free (costs[i][k]);
      plan_schedule_free (schedules[i]);
      plan_case_free (cases[i]);
    }
}
END_TEST

/* Models of full size with some micro-batches: here most of the time is jumped over. */
static const struct
{
  const char *model, *cluster, *words;
} large[] = {
  { "llama3-8b", "dgx-h100:1", "gbs=128" },
  { "llama3-8b", "dgx-h100:1", "gbs=128 strategy=optim" },
  { "llama3-8b", "dgx-h100:1", "gbs=64 seq=128 strategy=no_shard" },
  { "llama3-8b", "dgx-h100:2", "gbs=256 seq=512 recompute=full" },
  { "llama3-8b", "dgx-h100:1", "gbs=96 compute=fp8-delayed param_gather=fp8 nccl_ub=on" },
  { "llama3-70b", "dgx-h100:8", "gbs=512" },
  { "llama3-70b", "dgx-h100:512", "gbs=40960 seq=1024" },
  { "gpt2", "dgx-h100:2", "gbs=256" },
};

START_TEST (full_size)
{
  g_autoptr (GError) error = NULL;
  g_auto (TestCase) c = { 0 };
  test_case_init (&c, large[_i].model, large[_i].cluster, large[_i].words);
  const SimCostInput input = sim_cost_input (c.of, c.schedule);
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_double_lt (assert_same (c.schedule, cost, c.of->stack, _i), 0.2);
}
END_TEST

static void
add_op (PlanSchedule *schedule, PlanOpKind kind, PlanStream stream, gint32 wait, gint32 record)
{
  PlanOp *op = plan_schedule_add_op (schedule, kind, stream);
  op->n_waits = wait >= 0;
  op->waits[0] = (PlanRef){ .array = wait, .loop = -1 };
  op->record = (PlanRef){ .array = record, .loop = -1 };
}

/* In each step the gather stream has 30 ns of work and the compute stream 20, so that it falls
 * behind from step to step. Its event is waited for only behind the repeat, by an op behind which
 * nothing begins: steps take 20 ns until the gather stream is in the way, and 30 ns from then on.
 */
START_TEST (falls_behind)
{
  g_autoptr (PlanSchedule) schedule = plan_schedule_new (0, 1);
  const gint32 event = plan_schedule_add_event (schedule, "first", 1);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  add_op (schedule, PLAN_OP_SYNC, PLAN_STREAM_COMPUTE, -1, -1);
  add_op (schedule, PLAN_OP_ZERO, PLAN_STREAM_GATHER, -1, event);
  add_op (schedule, PLAN_OP_ZERO, PLAN_STREAM_GATHER, -1, -1);
  add_op (schedule, PLAN_OP_ZERO, PLAN_STREAM_GATHER, -1, -1);
  plan_schedule_begin_repeat (schedule, "i", 0, 2, 1);
  add_op (schedule, PLAN_OP_ZERO, PLAN_STREAM_COMPUTE, -1, -1);
  plan_schedule_end_repeat (schedule);
  add_op (schedule, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, event, -1);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  g_autoptr (SimCost) cost = sim_cost_new_constant (schedule, 10, 0);
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  ck_assert_int_eq (sim_measure_step (schedule, cost, workspace), 30);
  assert_same (schedule, cost, NULL, 0);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-fold");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  test_add_share (tcase, any_schedule, 1500);
  test_add_share (tcase, any_plan, 150);
  test_add_share (tcase, any_wide_plan, 150);
  test_add_share (tcase, one_after_the_other, 60);
  tcase_add_test (tcase, falls_behind);
  tcase_add_loop_test (tcase, full_size, 0, G_N_ELEMENTS (large));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
