/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against a slow one that shares no code with it: it writes out all ops of many steps
 * and looks back over the whole list for each. Then laws of simulated times and memory. */
#include "config.h"

#include "sim/sharing.h"
#include "sim/sim.h"
#include "tests/case.h"
#include "tests/prop/random.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 24 /* more than the simulator needs to become steady */

/* One op of the whole expansion: setup, then STEPS steps. */
typedef struct
{
  const PlanOp *op;
  guint node;
  guint32 waits[PLAN_MAX_WAITS];
  gint64 record; /* event id or -1 */
  gint64 start, end;
  gboolean takes_time;
} Issued;

static GArray *
expand (const PlanSchedule *schedule, guint *out_last_step)
{
  GArray *all = g_array_new (FALSE, TRUE, sizeof (Issued));
  for (guint part = 0; part <= STEPS; part++)
    {
      PlanCursor cursor;
      const PlanOp *op;
      *out_last_step = all->len;
      for (plan_cursor_start (&cursor, schedule, part ? PLAN_SECTION_STEP : PLAN_SECTION_SETUP);
           (op = plan_cursor_next (&cursor));)
        {
          Issued issued = { .op = op, .node = cursor.node, .record = -1 };
          for (guint w = 0; w < op->n_waits; w++)
            issued.waits[w] = plan_cursor_event (&cursor, &op->waits[w]);
          if (op->record.array >= 0)
            issued.record = plan_cursor_event (&cursor, &op->record);
          g_array_append_val (all, issued);
        }
    }
  return all;
}

/* When an event was last recorded before op `i`. */
static gint64
event_slowly (const GArray *all, guint i, guint32 event)
{
  while (i-- > 0)
    if (g_array_index (all, Issued, i).record == event)
      return g_array_index (all, Issued, i).end;
  return 0;
}

/* A time in which a stream's load on the shared resources does not change. */
typedef struct
{
  gint64 start, end;
  SimLoad load;
} Spell;

static void
forget_slowly (GArray *spells, gint64 now)
{
  while (spells->len > 0 && g_array_index (spells, Spell, 0).end <= now)
    g_array_remove_index (spells, 0);
}

/* The last SIM_SPELLS spells of one stream before op `i`; the others do not slow op `i`. */
static GArray *
spells_slowly (const GArray *all, guint i, const SimCost *cost, guint stream)
{
  GArray *spells = g_array_new (FALSE, FALSE, sizeof (Spell));
  for (guint j = 0; j <= i; j++)
    {
      const Issued *other = &g_array_index (all, Issued, j);
      const SimLoad load = sim_cost_load (cost, other->node);
      const Spell spell = { other->start, other->end, load };
      Spell *last = spells->len ? &g_array_index (spells, Spell, spells->len - 1) : NULL;
      const gboolean is_loaded = memcmp (&load, &(SimLoad){ { 0 } }, sizeof load) != 0;
      if (!other->takes_time)
        continue;
      if (other->op->stream == PLAN_STREAM_COMPUTE)
        forget_slowly (spells, other->start);
      else if (j < i && other->op->stream == stream && is_loaded)
        {
          if (last && last->end == spell.start && memcmp (&last->load, &load, sizeof load) == 0)
            last->end = spell.end;
          else
            g_array_append_val (spells, spell);
          if (spells->len > SIM_SPELLS)
            g_array_remove_index (spells, 0);
        }
    }
  return spells;
}

/* Per mille of its undisturbed pace at which an op runs at time `now`: of each resource it gets
 * what other streams leave, but at least an even part. */
static guint
pace_slowly (GArray *const spells[PLAN_N_STREAMS], SimLoad own, guint stream, gint64 now)
{
  guint pace = 1000;
  for (guint r = 0; r < SIM_N_SHARED; r++)
    {
      guint used = 0, users = 0;
      for (guint s = 0; s < PLAN_N_STREAMS; s++)
        for (guint i = 0; s != stream && i < spells[s]->len; i++)
          {
            const Spell *spell = &g_array_index (spells[s], Spell, i);
            const gboolean is_now = spell->start <= now && now < spell->end;
            used += is_now ? spell->load.permille[r] : 0;
            users += is_now && spell->load.permille[r] > 0;
          }
      const guint left = MAX (used < 1000 ? 1000 - used : 0, 1000 / (users + 1));
      if (own.permille[r] > left)
        pace = MIN (pace, 1000 * left / own.permille[r]);
    }
  return pace;
}

/* How long op `i` takes beside others, counted nanosecond by nanosecond. */
static gint64
run_slowly (const GArray *all, guint i, const SimCost *cost)
{
  const Issued *now = &g_array_index (all, Issued, i);
  const SimLoad own = sim_cost_load (cost, now->node);
  GArray *spells[PLAN_N_STREAMS];
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    spells[s] = spells_slowly (all, i, cost, s);
  gint64 ns = 0;
  for (gint64 left = 1000 * sim_cost_ns (cost, now->node); left > 0; ns++)
    left -= pace_slowly (spells, own, now->op->stream, now->start + ns);
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    g_array_unref (spells[s]);
  return ns;
}

/* Sets start and end of all ops; for each it looks back over the whole list. */
static void
simulate_slowly (GArray *all, const SimCost *cost, gint64 launch_ns)
{
  gint64 host = 0;
  for (guint i = 0; i < all->len; i++)
    {
      Issued *now = &g_array_index (all, Issued, i);
      const gboolean is_memory = plan_op_class (now->op->kind) == PLAN_CLASS_MEMORY;
      const gboolean is_sync = now->op->kind == PLAN_OP_SYNC;
      gint64 ready = 0;
      for (guint j = 0; j < i; j++) /* everything before on the same stream or communicator */
        {
          const PlanOp *before = g_array_index (all, Issued, j).op;
          if (before->stream == now->op->stream
              || (now->op->group >= 0 && before->group == now->op->group))
            ready = MAX (ready, g_array_index (all, Issued, j).end);
        }
      for (guint w = 0; w < now->op->n_waits; w++)
        ready = MAX (ready, event_slowly (all, i, now->waits[w]));
      if (!is_memory && !is_sync)
        host += launch_ns;
      now->start = is_memory ? ready : MAX (ready, host);
      now->takes_time = !is_memory && !is_sync;
      now->end = now->start + (now->takes_time ? run_slowly (all, i, cost) : 0);
      if (is_sync)
        host = now->end;
    }
}

START_TEST (equals_the_slow_simulation)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = random_schedule (_i);
  const gint64 op_ns = 1 + _i % 17, launch_ns = _i % 3;
  g_autoptr (SimCost) cost = sim_cost_new_constant (schedule, op_ns, launch_ns);
  if (_i % 4)
    random_loads (cost, schedule, (guint32)_i);
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, NULL, &error);
  ck_assert_msg (trace != NULL, "seed %d: %s", _i, error ? error->message : "");
  guint last = 0;
  g_autoptr (GArray) all = expand (schedule, &last);
  simulate_slowly (all, cost, launch_ns);
  gint64 base = 0;
  for (guint i = last, s = 0; i < all->len; i++)
    {
      const Issued *issued = &g_array_index (all, Issued, i);
      if (plan_op_class (issued->op->kind) == PLAN_CLASS_MEMORY)
        continue;
      const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, s++);
      base = s == 1 ? issued->start - span->start_ns : base;
      ck_assert_uint_eq (span->node, issued->node);
      ck_assert_msg (span->start_ns == issued->start - base && span->end_ns == issued->end - base,
                     "seed %d: op %u", _i, span->node);
    }
}
END_TEST

/* Lowers and simulates a plan; if `shares`, ops that run side by side slow one another. */
static PlanTrace *
simulate_sharing (const PlanCase *of, int seed, gboolean shares)
{
  g_autoptr (GError) error = NULL;
  SimParams params = *sim_params_default (of->cluster);
  for (SimParam p = SIM_PARAM_SHARED_PROCESSORS; p <= SIM_PARAM_SHARED_LINKS; p++)
    params.value[p] = shares;
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  SimCostInput input = sim_cost_input (of, schedule);
  input.params = &params;
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  PlanTrace *trace = cost ? sim_run (schedule, cost, of->stack, &error) : NULL;
  ck_assert_msg (trace && plan_trace_check (trace, schedule, &error), "seed %d: %s", seed,
                 error ? error->message : "");
  return trace;
}

static PlanTrace *
simulate (const PlanCase *of, int seed)
{
  return simulate_sharing (of, seed, FALSE);
}

/* With sharing a step takes at least as long as without, and at most SIM_SLOWEST times as long. */
START_TEST (sharing_costs_within_bounds)
{
  g_autoptr (PlanModel) model = random_wide_model (_i);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (_i);
  g_autoptr (PlanCase) of = random_wide_case (_i, model, cluster);
  g_autoptr (PlanTrace) alone = simulate_sharing (of, _i, FALSE);
  g_autoptr (PlanTrace) beside = simulate_sharing (of, _i, TRUE);
  ck_assert_msg (beside->step_ns >= alone->step_ns, "seed %d: faster when shared", _i);
  ck_assert_msg (beside->step_ns <= SIM_SLOWEST * alone->step_ns, "seed %d: too slow", _i);
}
END_TEST

START_TEST (faster_hardware_is_never_slower)
{
  g_autoptr (PlanModel) model = random_model (_i);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (_i);
  g_autoptr (PlanCase) of = random_case (_i, model, cluster, _i % 2 ? "native" : "megatron-fsdp");
  g_autoptr (PlanTrace) base = simulate (of, _i);
  double *const rates[] = { &cluster->link_bytes_per_s,
                            &cluster->nic_bytes_per_s,
                            &cluster->memory_bytes_per_s,
                            &cluster->peak_flops[PLAN_DTYPE_BF16],
                            &cluster->peak_flops[PLAN_DTYPE_FP32],
                            &cluster->peak_flops[PLAN_DTYPE_E4M3],
                            &cluster->peak_flops[PLAN_DTYPE_E5M2],
                            &cluster->peak_flops[PLAN_DTYPE_MXFP8],
                            &cluster->peak_tf32_flops };
  for (guint r = 0; r < G_N_ELEMENTS (rates); r++)
    {
      *rates[r] *= 3;
      g_autoptr (PlanTrace) faster = simulate (of, _i);
      ck_assert_msg (faster->step_ns <= base->step_ns, "seed %d: rate %u", _i, r);
      *rates[r] /= 3;
    }
  gint64 *const latencies[] = { &cluster->link_latency_ns, &cluster->nic_latency_ns };
  for (guint l = 0; l < G_N_ELEMENTS (latencies); l++)
    {
      const gint64 was = *latencies[l];
      *latencies[l] = was / 2;
      g_autoptr (PlanTrace) faster = simulate (of, _i);
      ck_assert_msg (faster->step_ns <= base->step_ns, "seed %d: latency %u", _i, l);
      *latencies[l] = was;
    }
}
END_TEST

START_TEST (no_step_is_shorter_than_its_busiest_stream)
{
  g_autoptr (PlanModel) model = random_model (_i);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (_i);
  g_autoptr (PlanCase) of = random_case (_i, model, cluster, _i % 2 ? "native" : "megatron-fsdp");
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  g_autoptr (PlanTrace) trace = simulate (of, _i);
  gint64 busy[PLAN_N_STREAMS] = { 0 };
  for (guint i = 0; i < trace->spans->len; i++)
    {
      const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, i);
      busy[plan_schedule_node (schedule, span->node)->stream] += span->end_ns - span->start_ns;
    }
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    ck_assert_int_ge (trace->step_ns, busy[s]);
  ck_assert_int_eq (trace->compute_ns, busy[PLAN_STREAM_COMPUTE]);
}
END_TEST

/* The trace's bytes equal those found by adding up all live buffers after every op. */
START_TEST (memory_equals_the_slow_count)
{
  g_autoptr (PlanModel) model = random_model (_i);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (_i);
  g_autoptr (PlanCase) of = random_case (_i, model, cluster, _i % 2 ? "native" : "megatron-fsdp");
  const PlanStack *stack = of->stack;
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  g_autoptr (PlanTrace) trace = simulate (of, _i);
  const guint32 n = plan_schedule_n_buffer_ids (schedule);
  g_autofree guint64 *live = g_new0 (guint64, n + 1);
  guint64 peak = 0, resting = 0;
  for (guint part = 0; part < 2; part++)
    {
      PlanCursor cursor;
      const PlanOp *op;
      for (plan_cursor_start (&cursor, schedule, part ? PLAN_SECTION_STEP : PLAN_SECTION_SETUP);
           (op = plan_cursor_next (&cursor));)
        {
          if (op->kind != PLAN_OP_ALLOC && op->kind != PLAN_OP_FREE)
            continue;
          const guint64 bytes = plan_schedule_buffer_bytes (schedule, (guint)op->refs[0].array);
          const guint64 a = stack->memory.allocation_bytes;
          live[plan_cursor_buffer (&cursor, &op->refs[0])]
              = op->kind == PLAN_OP_ALLOC ? (bytes + a - 1) / a * a : 0;
          guint64 total = 0;
          for (guint32 i = 0; i < n; i++)
            total += live[i];
          peak = MAX (peak, total);
          resting = part ? resting : total;
        }
    }
  ck_assert_uint_eq (trace->memory.max_allocated, peak + stack->memory.fixed_bytes);
  ck_assert_uint_eq (trace->memory.allocated, resting + stack->memory.fixed_bytes);
  ck_assert_uint_ge (trace->memory.reserved, trace->memory.max_allocated);
  ck_assert_uint_ge (trace->memory.device, trace->memory.reserved);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-sim");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  test_add_share (tcase, equals_the_slow_simulation, 200);
  test_add_share (tcase, sharing_costs_within_bounds, 120);
  test_add_share (tcase, faster_hardware_is_never_slower, 60);
  test_add_share (tcase, no_step_is_shorter_than_its_busiest_stream, 100);
  test_add_share (tcase, memory_equals_the_slow_count, 40);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
