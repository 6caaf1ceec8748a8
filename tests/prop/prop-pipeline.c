/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines: that exchanges pair up, and how long a step takes. The oracle of times knows only
 * which forward and backward pass waits for which exchange. */
#include "config.h"

#include "advise/stages.h"
#include "planner/plan/stages.h"
#include "planner/schedule/check-stages.h"
#include "planner/schedule/meter.h"
#include "sim/fast/measure.h"
#include "sim/fast/passes.h"
#include "sim/fast/stages.h"
#include "sim/sim.h"
#include "tests/prop/pipelines.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MOST MOST_STAGES

/* A pipeline of n stages and m micro batches, with its times: of one exchange (c), and of a forward
 * and a backward pass on each stage. */
typedef struct
{
  gint64 n, m, c;
  gint64 forward[MOST], backward[MOST];
  gboolean is_afab; /* all forward passes come before all backward passes */
} Times;

/* What a stage does, in order: 'F' and 'B', and exchanges with the stage before ('u') or behind
 * ('d'). Written down pass by pass, as nanotron's AllForwardAllBackwardPipelineEngine does it. */
static char *
write_down_afab (const Times *t, gint64 r)
{
  GString *text = g_string_new (NULL);
  for (gint64 i = 0; i < t->m; i++)
    g_string_append (text, r == 0 ? "Fd" : r == t->n - 1 ? "uF" : "uFd");
  for (gint64 i = 0; i < t->m; i++)
    g_string_append (text, r == 0 ? "dB" : r == t->n - 1 ? "Bu" : "dBu");
  return g_string_free (text, FALSE);
}

/* The same as the schedule of Megatron-LM is described. */
static char *
write_down (const Times *t, gint64 r)
{
  if (t->is_afab)
    return write_down_afab (t, r);
  const gint64 ahead = MIN (t->n - 1 - r, t->m), left = t->m - ahead;
  const gboolean is_first = r == 0, is_last = r == t->n - 1;
  GString *text = g_string_new (NULL);
  for (gint64 i = 0; i < ahead; i++)
    g_string_append (text, is_first ? "Fd" : "uFd");
  if (left > 0 && !is_first)
    g_string_append_c (text, 'u');
  for (gint64 i = 0; i < left; i++)
    g_string_append (text, is_first && is_last ? "FB"
                           : is_first          ? "FdB"
                           : is_last           ? "FBu"
                                               : "FdBu");
  for (gint64 i = 0; i < ahead; i++)
    g_string_append (text, is_first ? "dB" : "dBu");
  return g_string_free (text, FALSE);
}

/* Goes round and round until nobody can go on: an exchange takes place when both are at it. */
static gint64
time_slowly (const Times *t)
{
  char *todo[MOST];
  gint64 at[MOST] = { 0 }, now[MOST] = { 0 }, end = 0;
  gboolean moves = TRUE;
  for (gint64 r = 0; r < t->n; r++)
    todo[r] = write_down (t, r);
  while (moves)
    {
      moves = FALSE;
      for (gint64 r = 0; r < t->n; r++)
        {
          const char what = todo[r][at[r]];
          if (what == 'F' || what == 'B')
            now[r] += what == 'F' ? t->forward[r] : t->backward[r];
          else if (what == 'd' && todo[r + 1][at[r + 1]] == 'u')
            {
              now[r] = now[r + 1] = MAX (now[r], now[r + 1]) + t->c;
              at[r + 1]++;
            }
          else
            continue;
          at[r]++;
          moves = TRUE;
        }
    }
  for (gint64 r = 0; r < t->n; r++)
    {
      ck_assert_int_eq (todo[r][at[r]], '\0');
      end = MAX (end, now[r]);
      g_free (todo[r]);
    }
  return end;
}

/* Times of steps that another model of pipelines gave, with which the design was checked. */
START_TEST (the_oracle_knows_its_numbers)
{
  const struct
  {
    Times times;
    gint64 step;
  } known[] = {
    { { 3, 7, 2, { 20, 19, 20 }, { 30, 22, 35 }, FALSE }, 496 },
    { { 4, 4, 2, { 11, 8, 20, 5 }, { 38, 36, 22, 23 }, FALSE }, 309 },
    { { 4, 12, 2, { 5, 19, 13, 12 }, { 28, 40, 13, 38 }, FALSE }, 835 },
    { { 5, 3, 2, { 15, 5, 5, 5, 5 }, { 40, 38, 22, 31, 16 }, FALSE }, 282 },
    { { 2, 4, 2, { 9, 7 }, { 18, 13 }, FALSE }, 131 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    ck_assert_int_eq (time_slowly (&known[i].times), known[i].step);
}
END_TEST

/* A pass of `ops` ops, each of which takes the same time. */
static void
add_pass (PlanSchedule *schedule, gint64 ops, gint32 buffer)
{
  plan_schedule_begin_repeat (schedule, "l", 0, ops, 1);
  PlanOp *op = plan_schedule_add_op (schedule, PLAN_OP_ZERO, PLAN_STREAM_COMPUTE);
  op->refs[0] = (PlanRef){ .array = buffer, .loop = -1 };
  op->dims[0] = 1;
  plan_schedule_end_repeat (schedule);
}

static void
add_exchange (PlanSchedule *schedule, gint64 peer, gint8 group, gint32 buffer, const gint32 *events)
{
  const PlanRef done = { .array = events[0], .loop = -1 },
                traded = { .array = events[1], .loop = -1 };
  plan_schedule_add_op (schedule, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE)->record = done;
  PlanOp *op = plan_schedule_add_op (schedule, PLAN_OP_TRADE, PLAN_STREAM_NEXT);
  op->refs[PLAN_REF_TRADE_out] = (PlanRef){ .array = buffer, .loop = -1 };
  op->dims[PLAN_DIM_TRADE_count] = 1;
  op->dims[PLAN_DIM_TRADE_peer] = peer;
  op->group = group;
  op->waits[op->n_waits++] = done;
  op->record = traded;
  op = plan_schedule_add_op (schedule, PLAN_OP_SYNC, PLAN_STREAM_HOST);
  op->waits[op->n_waits++] = traded;
}

/* One rank's schedule of that pipeline; at its end all stages wait for one another. */
static PlanSchedule *
new_schedule (const Times *t, gint64 r)
{
  PlanSchedule *schedule = plan_schedule_new ((guint)r, (guint)t->n);
  g_autofree char *todo = write_down (t, r);
  const gint32 buffer
      = plan_schedule_add_buffer (schedule, "x", 1, 1, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS);
  const gint32 events[] = { plan_schedule_add_event (schedule, "done", 1),
                            plan_schedule_add_event (schedule, "traded", 1) };
  const gint8 pipeline = plan_schedule_add_group (schedule, "pipeline", (guint)t->n, 1);
  const gint8 world = plan_schedule_add_group (schedule, "world", (guint)t->n, 1);
  const PlanRef x = { .array = buffer, .loop = -1 }, done = { .array = events[0], .loop = -1 },
                traded = { .array = events[1], .loop = -1 };
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_add_op (schedule, PLAN_OP_ALLOC, PLAN_STREAM_COMPUTE)->refs[0] = x;
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  for (const char *what = todo; *what; what++)
    if (*what == 'F' || *what == 'B')
      add_pass (schedule, (*what == 'F' ? t->forward[r] : t->backward[r]) / t->c, buffer);
    else
      add_exchange (schedule, *what == 'u' ? r - 1 : r + 1, pipeline, buffer, events);
  plan_schedule_add_op (schedule, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE)->record = done;
  PlanOp *op = plan_schedule_add_op (schedule, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE);
  op->refs[0] = x;
  op->dims[0] = 1;
  op->group = world;
  op->waits[op->n_waits++] = done;
  op->record = traded;
  op = plan_schedule_add_op (schedule, PLAN_OP_SYNC, PLAN_STREAM_HOST);
  op->waits[op->n_waits++] = traded;
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  plan_schedule_add_op (schedule, PLAN_OP_FREE, PLAN_STREAM_COMPUTE)->refs[0] = x;
  return schedule;
}

/* Asserts that the fast simulators agree with the one that goes op by op, and returns the step's
 * time. SimStages gives no answer where something is under way as stages meet: our own runtime may
 * gather and reduce then, and nanotron may reduce gradients of parameters that all ranks hold.
 * `must_tell` says that it must give one. It is not asked where the host does not wait for
 * exchanges. */
static gint64
simulate_both (PlanSchedule *const *schedules, SimCost *const *costs, guint n,
               const PlanStack *stack, gboolean must_tell, int seed)
{
  const SimPipeline meeting = { (const PlanSchedule *const *)schedules, n };
  g_autoptr (GError) error = NULL;
  PlanTrace *traces[MOST];
  ck_assert_msg (
      sim_run_stages (&meeting, (const SimCost *const *)costs, stack, traces, NULL, &error),
      "seed %d: %s", seed, error ? error->message : "");
  g_autoptr (SimStages) fast = sim_stages_new (&meeting, (const SimCost *const *)costs);
  const gboolean tells
      = !(stack && stack->pipeline.trades == PLAN_TRADES_ON_DEVICE) && sim_stages_run (fast);
  const gint64 step_ns = traces[0]->step_ns;
  ck_assert_msg (tells || !must_tell, "seed %d: something is under way as stages meet", seed);
  SimPasses passes;
  ck_assert (!sim_passes_run (&meeting, (const SimCost *const *)costs, NULL, &passes)
             || passes.step_ns == step_ns);
  for (guint i = 0; i < n && tells; i++)
    {
      SimShares shares;
      gint64 idle_ns, total = 0;
      sim_stages_split (fast, i, &shares, &idle_ns);
      const PlanTrace *t = traces[i];
      const gint64 found[] = { sim_stages_step_ns (fast),
                               shares.compute_ns,
                               shares.exposed_tensor_ns,
                               shares.exposed_gather_ns,
                               shares.exposed_reduce_ns,
                               shares.host_ns,
                               idle_ns };
      const gint64 wanted[] = {
        t->step_ns, t->compute_ns, t->exposed_tensor_ns, t->exposed_gather_ns, t->exposed_reduce_ns,
        t->host_ns, t->idle_ns
      };
      for (guint k = 0; k < G_N_ELEMENTS (wanted); k++)
        ck_assert_msg (found[k] == wanted[k],
                       "seed %d, stage %u of %u: total %u is %" G_GINT64_FORMAT
                       " ns, op by op %" G_GINT64_FORMAT,
                       seed, i, n, k, found[k], wanted[k]);
      const gint64 *node_ns = sim_stages_node_ns (fast, i);
      for (guint node = 0; node < plan_schedule_n_nodes (schedules[i]); node++)
        total += node_ns[node];
      for (guint s = 0; s < t->spans->len; s++)
        total -= g_array_index (t->spans, PlanSpan, s).end_ns
                 - g_array_index (t->spans, PlanSpan, s).start_ns;
      ck_assert_msg (total == 0, "seed %d, stage %u: ops take %" G_GINT64_FORMAT " ns more", seed,
                     i, total);
      if (stack)
        {
          g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
          PlanMemory memory = { 0 };
          ck_assert (sim_measure_memory (schedules[i], costs[i], stack, sim_stages_n_steps (fast),
                                         G_MAXUINT64, workspace, &memory, NULL));
          ck_assert_msg (memcmp (&memory, &t->memory, sizeof memory) == 0,
                         "seed %d, stage %u: memory is not what it is op by op", seed, i);
        }
    }
  for (guint i = 0; i < n; i++)
    plan_trace_free (traces[i]);
  return step_ns;
}

START_TEST (a_step_takes_what_the_oracle_says)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Times t = { .n = g_rand_int_range (rand, 2, 9),
              .m = g_rand_int_range (rand, 1, 25),
              .c = 3,
              .is_afab = _i % 4 == 1 };
  PlanSchedule *schedules[MOST];
  SimCost *costs[MOST];
  for (gint64 r = 0; r < t.n; r++)
    {
      t.forward[r] = t.c * g_rand_int_range (rand, 1, 20);
      t.backward[r] = t.c * g_rand_int_range (rand, 1, 40);
    }
  for (gint64 r = 0; r < t.n; r++)
    {
      schedules[r] = new_schedule (&t, r);
      costs[r] = sim_cost_new_constant (schedules[r], t.c, 0);
    }
  const gint64 step_ns = simulate_both (schedules, costs, (guint)t.n, NULL, TRUE, _i);
  ck_assert_msg (step_ns == time_slowly (&t) + t.c,
                 "seed %d: %" G_GINT64_FORMAT " ns, and %" G_GINT64_FORMAT " by the oracle", _i,
                 step_ns - t.c, time_slowly (&t));
  for (gint64 r = 0; r < t.n; r++)
    {
      plan_schedule_free (schedules[r]);
      sim_cost_free (costs[r]);
    }
}
END_TEST

/* With equal stages a step has (m + n - 1) slots of a forward and a backward pass, and a number of
 * exchanges beside which nothing is computed. */
START_TEST (the_closed_form_holds)
{
  const gint64 n = 3 + _i % 6, m = n + _i / 6;
  Times t = { .n = n, .m = m, .c = 2 };
  for (gint64 r = 0; r < n; r++)
    {
      t.forward[r] = 14;
      t.backward[r] = 30;
    }
  ck_assert_int_eq (time_slowly (&t), (m + n - 1) * 44 + 2 * (2 * (m + n) - 5));
}
END_TEST

/* All forward and then all backward passes of equal stages take the same slots: m + n - 1 forward
 * ones, then as many backward ones, of which each stage idles in n - 1 of either. Beside them there
 * is one exchange per slot and link of the way that is filled, on which all others wait. */
START_TEST (the_closed_form_of_afab_holds)
{
  const gint64 n = 2 + _i % 7, m = 1 + _i / 7;
  Times t = { .n = n, .m = m, .c = 0, .is_afab = TRUE };
  for (gint64 r = 0; r < n; r++)
    {
      t.forward[r] = 14;
      t.backward[r] = 30;
    }
  const gint64 step = time_slowly (&t), busy = m * 44;
  ck_assert_int_eq (step, (m + n - 1) * 44);
  ck_assert_int_eq ((step - busy) * (m + n - 1), step * (n - 1)); /* the bubble's share */
  t.c = 2;
  ck_assert_int_eq (time_slowly (&t),
                    (m + n - 1) * 44 + 2 * t.c * (n == 2 ? m : n - 1 + 2 * (m - 1)));
  t.is_afab = FALSE;
  t.c = 0;
  ck_assert_int_eq (time_slowly (&t), step);
}
END_TEST

/* A stage of a lowered plan has all forward passes before its first backward pass, and holds the
 * activations of all micro batches then; with the same costs 1F1B takes as long, up to exchanges.
 */
START_TEST (afab_holds_all_micro_batches)
{
  static const char *const words[]
      = { "stack=native strategy=no_shard", "stack=nanotron strategy=optim",
          "stack=fsdp2 strategy=optim_grads" };
  g_autoptr (PlanModel) model
      = plan_model_new ("layers=8,hidden=64,ffn=128,heads=4,vocab=128,max_seq=64,tied=off", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    for (guint rank = 0; rank < 8; rank += 2)
      {
        g_autofree char *all = g_strconcat (words[i], " pp=4 gbs=14 seq=64 pp_schedule=afab", NULL);
        g_autoptr (PlanCase) of = test_case (model, cluster, all);
        g_autoptr (PlanSchedule) schedule = test_lower (of, rank);
        gint64 forward = 0, backward = 0;
        PlanCursor cursor;
        plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
        for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
          {
            forward += op->kind == PLAN_OP_ATTENTION;
            backward += op->kind == PLAN_OP_ATTENTION_BWD;
            ck_assert (op->kind != PLAN_OP_ATTENTION || backward == 0);
          }
        ck_assert_int_ge (forward, 7);
        ck_assert_int_eq (forward, backward);
        ck_assert_int_eq (plan_stage_held (&of->plan, rank / 2, 7), 7);
      }
}
END_TEST

START_TEST (the_fast_simulation_equals_that_of_all_ops)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, FALSE);
  const gboolean is_whole = p.of->plan.value[PLAN_STRATEGY] == PLAN_STRATEGY_NO_SHARD;
  const gint64 stack = p.of->stack->id;
  /* Nothing is under way as stages of these stacks meet, but what comes back from the host. */
  const gboolean drains
      = (stack == PLAN_STACK_MEGATRON && p.of->plan.value[PLAN_OFFLOAD_MODULES] == 0)
        || (stack == PLAN_STACK_NANOTRON && !is_whole);
  simulate_both (p.schedules, p.costs, p.n, p.of->stack, drains, _i);
}
END_TEST

/* Of the stages that an allocator is run for the fullest one is the fullest of all. */
START_TEST (the_fullest_stage_is_found)
{
  g_auto (Pipeline) p = { 0 };
  g_auto (AdviseStages) stages = { 0 };
  pipeline_init (&p, (guint)_i * 2 + 1, _i % 3 == 0);
  const AdviseInput input = { .model = p.model, .cluster = p.cluster };
  const SimPipeline pipeline = { (const PlanSchedule *const *)p.schedules, p.n };
  PlanTrace *traces[MOST_STAGES];
  guint64 live[MOST_STAGES], bytes;
  guint fullest = 0, n_steps;
  ck_assert (
      sim_run_stages (&pipeline, (const SimCost *const *)p.costs, p.of->stack, traces, NULL, NULL));
  for (guint i = 0; i < p.n; i++)
    {
      live[i] = sim_measure_least_bytes (p.schedules[i], p.of->stack);
      if (traces[i]->memory.device > traces[fullest]->memory.device)
        fullest = i;
    }
  ck_assert_int_ge (
      sim_measure_stages_step (&pipeline, (const SimCost *const *)p.costs, FALSE, &n_steps), 0);
  advise_stages_start (&stages, p.of, FALSE);
  ck_assert_uint_eq (
      advise_stages_memory (&stages, &input, p.of, live, n_steps, G_MAXUINT64, &bytes, NULL),
      fullest);
  ck_assert_uint_eq (bytes, traces[fullest]->memory.device);
  for (guint i = 0; i < p.n; i++)
    plan_trace_free (traces[i]);
}
END_TEST

/* The next exchange with that stage, leaving out those of gradients of shared embeddings. */
static const PlanOp *
next_trade (PlanCursor *cursor, const PlanSchedule *schedule, guint peer)
{
  const PlanOp *op;
  while ((op = plan_cursor_next (cursor)))
    {
      const gint32 out = op->kind == PLAN_OP_TRADE ? op->refs[PLAN_REF_TRADE_out].array : -1;
      if (op->kind == PLAN_OP_TRADE && op->dims[PLAN_DIM_TRADE_peer] == peer
          && !(out >= 0
               && g_str_equal (plan_schedule_buffer (schedule, (guint)out)->name, "other_share")))
        break;
    }
  return op;
}

/* Exchanges of neighbours pair up, one by one: what the one sends the other takes. */
START_TEST (what_is_sent_is_received)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, FALSE);
  const gint64 m = plan_micro_batches (&p.of->plan, p.cluster);
  g_autoptr (GError) error = NULL;
  ck_assert_msg (plan_schedule_check_stages ((const PlanSchedule *const *)p.schedules, p.n, &error),
                 "%s", error ? error->message : "");
  for (guint i = 0; i + 1 < p.n; i++)
    {
      PlanCursor up, down;
      gint64 forward = 0, backward = 0;
      plan_cursor_start (&down, p.schedules[i], PLAN_SECTION_STEP);
      plan_cursor_start (&up, p.schedules[i + 1], PLAN_SECTION_STEP);
      for (;;)
        {
          const PlanOp *a = next_trade (&down, p.schedules[i], i + 1);
          const PlanOp *b = next_trade (&up, p.schedules[i + 1], i);
          ck_assert_int_eq (a == NULL, b == NULL);
          if (!a)
            break;
          const gboolean sends = a->refs[PLAN_REF_TRADE_in].array >= 0;
          const gboolean takes = a->refs[PLAN_REF_TRADE_out].array >= 0;
          ck_assert_int_eq (sends, b->refs[PLAN_REF_TRADE_out].array >= 0);
          ck_assert_int_eq (takes, b->refs[PLAN_REF_TRADE_in].array >= 0);
          ck_assert_int_eq (a->dims[PLAN_DIM_TRADE_count], b->dims[PLAN_DIM_TRADE_count]);
          forward += sends;
          backward += takes;
        }
      ck_assert_int_eq (forward, m);
      ck_assert_int_eq (backward, m);
    }
}
END_TEST

/* Whether a stage's first reduction begins before it has sent its last gradient. */
static gboolean
reduces_before_end (const PlanSchedule *schedule)
{
  gint64 at = 0, reduced = G_MAXINT64, traded = -1;
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor)); at++)
    if (op->kind == PLAN_OP_TRADE)
      traded = at;
    else if (op->stream == PLAN_STREAM_REDUCE && plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
      reduced = MIN (reduced, at);
  return reduced < traded;
}

/* Megatron-LM's later stages reduce behind their last gradient, nanotron's beside their last
 * backward pass; with its sharded optimizer it reduces everything behind all passes. */
START_TEST (later_stages_reduce_when_their_stack_does)
{
  static const char *const words[]
      = { "stack=megatron strategy=no_shard", "stack=megatron strategy=optim",
          "stack=nanotron strategy=no_shard", "stack=nanotron strategy=optim" };
  g_autoptr (PlanModel) model
      = plan_model_new ("layers=4,hidden=64,ffn=128,heads=4,vocab=128,max_seq=64", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    {
      g_autofree char *all = g_strconcat (words[i], " pp=2 gbs=16 seq=64", NULL);
      g_autoptr (PlanCase) of = test_case (model, cluster, all);
      g_autoptr (PlanSchedule) last = test_lower (of, 4);
      ck_assert_int_eq (reduces_before_end (last), i == 2);
    }
}
END_TEST

/* FLOPs of all ops of a step. */
static double
flops_of (const PlanSchedule *schedule)
{
  double flops = 0;
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    flops += plan_op_flops (op);
  return flops;
}

/* All stages together compute as many FLOPs as one rank that holds the whole model. */
START_TEST (stages_compute_what_one_does)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, FALSE);
  Plan plan = p.of->plan;
  double found = 0;
  /* Of layers that are recomputed together, the last one's output is not recomputed. Stages cut
   * such groups, which changes how many outputs that are. */
  if (p.of->stack->layer.repeats != PLAN_REPEATS_OUTPUTS
      && plan.value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL)
    plan.value[PLAN_RECOMPUTE_LAYERS] = 1;
  g_autoptr (PlanCase) staged = test_case_of (p.model, p.cluster, &plan);
  for (guint i = 0; i < p.n; i++)
    {
      g_autoptr (PlanSchedule) stage = test_lower (staged, plan_schedule_rank (p.schedules[i]));
      found += flops_of (stage);
    }
  plan.value[PLAN_GBS] *= plan.value[PLAN_PP];
  plan_stages_clear (&plan);
  plan.value[PLAN_PP_SCHEDULE] = PLAN_PP_SCHEDULE_1F1B;
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCase) of = plan_case_new (p.model, p.cluster, &plan, NULL, &error);
  ck_assert_msg (of != NULL, "%s", error ? error->message : "");
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  ck_assert_msg (flops_of (schedule) == found, "seed %d: %.17g FLOPs, and %.17g on all stages", _i,
                 flops_of (schedule), found);
}
END_TEST

/* Collects the host's time to issue each GEMM, by the name of its output buffer; asserts that those
 * with the same output have the same time. */
static void
find_launches (const Pipeline *p, guint stage, GHashTable *launches)
{
  PlanCursor cursor;
  plan_cursor_start (&cursor, p->schedules[stage], PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      if (op->kind != PLAN_OP_GEMM)
        continue;
      const PlanRef *out = &op->refs[PLAN_REF_GEMM_out];
      const char *name = plan_schedule_buffer (p->schedules[stage], (guint)out->array)->name;
      const gint64 ns = sim_cost_launch_ns (p->costs[stage], cursor.node);
      const gint64 known = GPOINTER_TO_INT (g_hash_table_lookup (launches, name));
      if (known == 0)
        g_hash_table_insert (launches, g_strdup (name), GINT_TO_POINTER ((gint)ns));
      else
        ck_assert_msg (known == ns, "%s of stage %u: %d ns, and %d ns", name, stage, (int)known,
                       (int)ns);
    }
}

/* The host's time to issue a backward GEMM is the same on every stage, whether the gradient comes
 * from the loss or from the next stage. */
START_TEST (every_stage_issues_alike)
{
  g_auto (Pipeline) p = { 0 };
  g_autoptr (GHashTable) launches = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  pipeline_init (&p, (guint)_i, _i % 2);
  for (guint i = 0; i < p.n; i++)
    find_launches (&p, i, launches);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-pipeline");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  tcase_add_test (tcase, the_oracle_knows_its_numbers);
  tcase_add_loop_test (tcase, the_closed_form_holds, 0, 60);
  tcase_add_loop_test (tcase, the_closed_form_of_afab_holds, 0, 70);
  tcase_add_test (tcase, afab_holds_all_micro_batches);
  tcase_add_test (tcase, later_stages_reduce_when_their_stack_does);
  test_add_share (tcase, a_step_takes_what_the_oracle_says, 200);
  test_add_share (tcase, the_fast_simulation_equals_that_of_all_ops, 60);
  test_add_share (tcase, the_fullest_stage_is_found, 120);
  test_add_share (tcase, stages_compute_what_one_does, 40);
  test_add_share (tcase, what_is_sent_is_received, 40);
  test_add_share (tcase, every_stage_issues_alike, 40);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
