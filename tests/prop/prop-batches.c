/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved stages, written down after the frameworks: which transfers make a batch (Megatron-LM,
 * pp_overlap=off) and when they are asked for (warmup_flush), and of which virtual stages weights
 * are gathered (PyTorch). */
#include "config.h"

#include "planner/plan/stages.h"
#include "planner/schedule/check-stages.h"
#include "sim/fast/passes.h"
#include "sim/sim.h"
#include "tests/prop/pipelines.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* `n` stages of `n_virtual` virtual stages each, and `m` micro batches in groups of `group`. */
typedef struct
{
  gint64 n, n_virtual, m, group;
} Shape;

static void
add_transfer (GString *text, gboolean is_there, const char *what)
{
  if (is_there)
    g_string_append (text, what);
}

/* Whether stage `r` receives after the k-th pass of a direction, as Megatron-LM's
 * recv_tensor_from_previous_stage tells: the stage that closes the ring does if the other end has
 * made something that long ago, and not in its last virtual stage. */
static gboolean
receives (const Shape *t, gint64 r, const Pass *passes, gint64 k, gint64 all)
{
  const gboolean is_backward = passes[0].is_backward;
  const gint64 last = is_backward ? 0 : t->n_virtual - 1;
  if (r != (is_backward ? t->n - 1 : 0))
    return k + 1 < all;
  return k >= t->n - 1 && passes[k - (t->n - 1)].virtual_stage != last;
}

/* Adds what stage `r` exchanges after the k-th pass of a direction: it sends ('>' to the next
 * stage,
 * '<' to the previous one) and receives ('v' from the previous, '^' from the next). */
static void
describe_transfers (GString *text, const Shape *t, gint64 r, const Pass *passes, gint64 k,
                    gint64 all)
{
  const gboolean is_backward = passes[k].is_backward;
  const gboolean is_end = r == (is_backward ? 0 : t->n - 1)
                          && passes[k].virtual_stage == (is_backward ? 0 : t->n_virtual - 1);
  add_transfer (text, !is_end, is_backward ? "<" : ">");
  add_transfer (text, receives (t, r, passes, k, all), is_backward ? "^" : "v");
}

static int
compare_letters (const void *a, const void *b)
{
  return *(const char *)a - *(const char *)b;
}

/* Ends a batch: its transfers in a fixed order, and nothing if there are none. */
static void
end_batch (GString *text, GString *batch)
{
  qsort (batch->str, batch->len, 1, compare_letters);
  if (batch->len > 0)
    g_string_append_printf (text, "[%s]", batch->str);
  g_string_truncate (batch, 0);
}

/* What a stage does, as schedules.py (forward_backward_pipelining_with_interleaving, without
 * overlap of exchanges) is written: passes and the batches of transfers between them. */
static char *
write_down_batches (const Shape *t, gint64 r)
{
  Pass forward[MOST_PASSES], backward[MOST_PASSES];
  const gint64 all = pipeline_passes (t->m, t->group, t->n_virtual, FALSE, forward);
  const gint64 ahead = MIN (2 * (t->n - 1 - r) + (t->n_virtual - 1) * t->group, all);
  g_autoptr (GString) batch = g_string_new (r > 0 ? "v" : "");
  GString *text = g_string_new (NULL);
  pipeline_passes (t->m, t->group, t->n_virtual, TRUE, backward);
  end_batch (text, batch);
  for (gint64 k = 0; k < ahead; k++)
    {
      g_string_append_c (text, 'F');
      describe_transfers (batch, t, r, forward, k, all);
      add_transfer (batch, k + 1 == ahead && ahead < all && r + 1 < t->n, "^");
      end_batch (text, batch);
    }
  add_transfer (batch, ahead == all && r + 1 < t->n, "^");
  end_batch (text, batch);
  for (gint64 k = 0; k < all; k++)
    {
      if (ahead + k < all)
        {
          g_string_append_c (text, 'F');
          describe_transfers (batch, t, r, forward, ahead + k, all);
        }
      g_string_append_c (text, 'B');
      describe_transfers (batch, t, r, backward, k, all);
      end_batch (text, batch);
    }
  return g_string_free (text, FALSE);
}

/* The same, of a stage's schedule: a batch ends where the host waits. */
static char *
find_batches (const Pipeline *p, guint stage)
{
  const PlanSchedule *schedule = p->schedules[stage];
  const PlanStage part = plan_stage_of (p->model, p->of->stack, &p->of->plan, stage);
  g_autoptr (GString) batch = g_string_new (NULL);
  GString *text = g_string_new (NULL);
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD)
      {
        const gboolean is_backward = op->kind == PLAN_OP_ATTENTION_BWD;
        const gint64 layer
            = plan_cursor_index (
                  &cursor,
                  &op->refs[is_backward ? PLAN_REF_ATTENTION_BWD_out : PLAN_REF_ATTENTION_out])
              % part.layers;
        for (gint64 i = 0; i < part.n_virtual; i++)
          {
            const PlanStage one = plan_stage_virtual (&part, i);
            if (layer == (is_backward ? one.first + one.layers - 1 : one.first))
              g_string_append_c (text, is_backward ? 'B' : 'F');
          }
      }
    else if (op->kind == PLAN_OP_TRADE)
      {
        const gboolean is_next = op->dims[PLAN_DIM_TRADE_peer] == (stage + 1) % p->n;
        add_transfer (batch, op->refs[PLAN_REF_TRADE_in].array >= 0, is_next ? ">" : "<");
        add_transfer (batch, op->refs[PLAN_REF_TRADE_out].array >= 0, is_next ? "^" : "v");
      }
    else if (op->kind == PLAN_OP_SYNC)
      end_batch (text, batch);
  return g_string_free (text, FALSE);
}

/* With pp_overlap=off stages exchange in the batches that are written down, in which what two
 * neighbours exchange at once is one trade. */
START_TEST (batches_are_those_that_are_described)
{
  static const char *const words[] = { "pp=4 vpp=2 gbs=16",
                                       "pp=4 vpp=2 gbs=32",
                                       "pp=4 vpp=3 gbs=32",
                                       "pp=4 vpp=2 gbs=24",
                                       "pp=4 vpp=3 gbs=36 pp_group=7",
                                       "pp=8 vpp=2 gbs=16",
                                       "pp=8 vpp=3 gbs=28 pp_group=10" };
  g_autoptr (PlanModel) model
      = plan_model_new ("layers=48,hidden=64,ffn=128,heads=4,vocab=128,max_seq=64", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_autofree char *all
      = g_strconcat ("stack=megatron strategy=optim seq=64 pp_overlap=off ", words[_i], NULL);
  Pipeline p = { .model = model, .cluster = cluster };
  p.of = test_case (model, cluster, all);
  p.n = (guint)p.of->plan.value[PLAN_PP];
  const gint64 *value = p.of->plan.value;
  const Shape t = { .n = value[PLAN_PP],
                    .n_virtual = value[PLAN_VPP],
                    .m = plan_micro_batches (&p.of->plan, cluster),
                    .group = plan_stage_group (&p.of->plan) };
  guint trades = 0;
  for (guint i = 0; i < p.n; i++)
    p.schedules[i] = test_lower (p.of, i * 8 / p.n);
  for (guint i = 0; i < p.n; i++)
    {
      g_autofree char *wanted = write_down_batches (&t, i), *found = find_batches (&p, i);
      ck_assert_str_eq (found, wanted);
      trades += (guint)strlen (wanted);
      plan_schedule_free (p.schedules[i]);
    }
  ck_assert_uint_gt (trades, 0);
  plan_case_free (p.of);
}
END_TEST

/* --- while the pipeline fills and drains -------------------------------------------------------
 */

/* Ends the transfers that are posted one after another, and adds what comes next. */
static void
add_step (GString *text, GString *batch, gboolean is_there, char what)
{
  if (!is_there)
    return;
  end_batch (text, batch);
  g_string_append_c (text, what);
}

/* Whether stage `r` exchanges something beyond a pass: its input, else its output. */
static gboolean
goes_beyond (const Shape *t, gint64 r, const Pass *pass, gboolean is_input)
{
  const gboolean is_first = pass->is_backward ? !is_input : is_input;
  return !(r == (is_first ? 0 : t->n - 1)
           && pass->virtual_stage == (is_first ? 0 : t->n_virtual - 1));
}

/* What a stage does, as schedules.py is written with overlap_p2p_comm_warmup_flush. Compute waits
 * for what a pass reads ('i' input, 'o' gradient of its output), passes (F, B) compute, and it
 * waits for what was sent ('s' output, 'g' gradient of an input): for an output at once (`awaits`,
 * since 2026-04-16), else when the next one is sent. Up to the first backward pass all stages but
 * the first one ask for the next input before a pass; from the last forward pass on all but the
 * last one ask for the next gradient so. */
static char *
write_down_overlap (const Shape *t, gint64 r, gboolean awaits)
{
  Pass forward[MOST_PASSES], backward[MOST_PASSES];
  const gint64 all = pipeline_passes (t->m, t->group, t->n_virtual, FALSE, forward);
  const gint64 ahead = MIN (2 * (t->n - 1 - r) + (t->n_virtual - 1) * t->group, all);
  g_autoptr (GString) batch = g_string_new (r > 0 ? "v" : "");
  GString *text = g_string_new (NULL);
  gboolean output = FALSE, gradient = FALSE; /* is sent and not waited for */
  pipeline_passes (t->m, t->group, t->n_virtual, TRUE, backward);
  for (gint64 k = 0; k < ahead + all; k++)
    {
      if (k == ahead) /* the first gradient comes */
        add_transfer (batch, r + 1 < t->n, "^");
      if (k < all)
        {
          const gboolean sends = goes_beyond (t, r, &forward[k], FALSE);
          const gboolean takes = receives (t, r, forward, k, all), is_early = k < ahead && r > 0;
          add_step (text, batch, goes_beyond (t, r, &forward[k], TRUE), 'i');
          add_transfer (batch, takes && is_early, "v");
          add_step (text, batch, TRUE, 'F');
          add_step (text, batch, output, 's');
          add_transfer (batch, sends, ">");
          add_transfer (batch, takes && !is_early, "v");
          add_step (text, batch, sends && awaits, 's');
          output = sends && !awaits;
        }
      if (k < ahead)
        continue;
      const gint64 b = k - ahead;
      const gboolean sends = goes_beyond (t, r, &backward[b], FALSE);
      const gboolean takes = receives (t, r, backward, b, all);
      const gboolean is_early = b >= all - ahead && r + 1 < t->n;
      add_step (text, batch, output && k >= all, 's');
      output = output && k < all;
      add_step (text, batch, goes_beyond (t, r, &backward[b], TRUE), 'o');
      add_transfer (batch, takes && is_early, "^");
      add_step (text, batch, TRUE, 'B');
      add_step (text, batch, gradient, 'g');
      add_transfer (batch, sends, "<");
      add_transfer (batch, takes && !is_early, "^");
      gradient = sends;
    }
  add_step (text, batch, gradient, 'g');
  return g_string_free (text, FALSE);
}

/* The letter of a wait of compute; 0: it is for nothing that stages exchange. */
static char
letter_of_wait (const PlanSchedule *schedule, const PlanOp *op)
{
  const char *name = op->n_waits == 1 && op->stream == PLAN_STREAM_COMPUTE
                         ? plan_schedule_event (schedule, (guint)op->waits[0].array)->name
                         : "";
  return strcmp (name, "input") == 0             ? 'i'
         : strcmp (name, "output") == 0          ? 's'
         : strcmp (name, "output_gradient") == 0 ? 'o'
         : strcmp (name, "input_gradient") == 0  ? 'g'
                                                 : 0;
}

/* The letter of the pass that begins with an op; 0: none does. */
static char
letter_of_pass (const PlanStage *part, const PlanCursor *cursor, const PlanOp *op)
{
  const gboolean is_backward = op->kind == PLAN_OP_ATTENTION_BWD;
  if (op->kind != PLAN_OP_ATTENTION && !is_backward)
    return 0;
  const PlanRef *out = &op->refs[is_backward ? PLAN_REF_ATTENTION_BWD_out : PLAN_REF_ATTENTION_out];
  const gint64 layer = plan_cursor_index (cursor, out) % part->layers;
  for (gint64 i = 0; i < part->n_virtual; i++)
    {
      const PlanStage one = plan_stage_virtual (part, i);
      if (layer == (is_backward ? one.first + one.layers - 1 : one.first))
        return is_backward ? 'B' : 'F';
    }
  return 0;
}

static char *
find_overlap (const Pipeline *p, guint stage)
{
  const PlanSchedule *schedule = p->schedules[stage];
  const PlanStage part = plan_stage_of (p->model, p->of->stack, &p->of->plan, stage);
  g_autoptr (GString) batch = g_string_new (NULL);
  GString *text = g_string_new (NULL);
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_TRADE)
      {
        const gboolean is_next = plan_schedule_group (schedule, (guint)op->group)->name[0] == 'n';
        add_transfer (batch, op->refs[PLAN_REF_TRADE_in].array >= 0, is_next ? ">" : "<");
        add_transfer (batch, op->refs[PLAN_REF_TRADE_out].array >= 0, is_next ? "^" : "v");
      }
    else
      {
        const char letter = op->kind == PLAN_OP_WAIT ? letter_of_wait (schedule, op)
                                                     : letter_of_pass (&part, &cursor, op);
        add_step (text, batch, letter != 0, letter);
      }
  return g_string_free (text, FALSE);
}

/* With pp_overlap=warmup_flush stages ask, compute and wait as it is written down. */
START_TEST (ends_are_overlapped_as_described)
{
  static const char *const words[]
      = { "pp=3 vpp=2 gbs=24", "pp=3 vpp=3 gbs=64 pp_group=4", "pp=4 vpp=2 gbs=24",
          "pp=4 vpp=3 gbs=72", "pp=4 vpp=2 gbs=60 pp_group=5", "pp=6 vpp=2 gbs=24",
          "pp=8 vpp=3 gbs=72", "pp=8 vpp=3 gbs=66 pp_group=11" };
  g_autoptr (PlanModel) model
      = plan_model_new ("layers=72,hidden=64,ffn=128,heads=4,vocab=128,max_seq=64", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:3", NULL);
  const gboolean awaits = _i % 2;
  g_autofree char *all
      = g_strconcat ("strategy=optim seq=64 pp_overlap=warmup_flush stack=megatron",
                     awaits ? " " : "@2026-04-01 ", words[_i / 2], NULL);
  Pipeline p = { .model = model, .cluster = cluster };
  p.of = test_case (model, cluster, all);
  p.n = (guint)p.of->plan.value[PLAN_PP];
  const gint64 *value = p.of->plan.value;
  const Shape t = { .n = value[PLAN_PP],
                    .n_virtual = value[PLAN_VPP],
                    .m = plan_micro_batches (&p.of->plan, cluster),
                    .group = plan_stage_group (&p.of->plan) };
  for (guint i = 0; i < p.n; i++)
    p.schedules[i] = test_lower (p.of, i * 24 / p.n);
  g_autoptr (GError) error = NULL;
  ck_assert_msg (plan_schedule_check_stages ((const PlanSchedule *const *)p.schedules, p.n, &error),
                 "%s: %s", all, error ? error->message : "");
  for (guint i = 0; i < p.n; i++)
    {
      g_autofree char *wanted = write_down_overlap (&t, i, awaits), *found = find_overlap (&p, i);
      ck_assert_msg (strcmp (found, wanted) == 0, "%s, stage %u:\n%s\n%s", all, i, found, wanted);
      ck_assert_uint_gt (strlen (wanted), 2 * (guint)(t.m * t.n_virtual));
      plan_schedule_free (p.schedules[i]);
    }
  plan_case_free (p.of);
}
END_TEST

/* A batch takes as long as the slowest of its transfers, and the host waits: the step is longer
 * than one whose exchanges run beside compute. The fast simulation of both is that of all ops. */
START_TEST (batches_take_longer)
{
  static const char *const overlaps[] = { "on", "off" };
  gint64 step_ns[2];
  g_autoptr (PlanModel) model = plan_model_new (
      "layers=24,hidden=4096,ffn=8192,heads=32,vocab=32000,max_seq=2048,tied=off", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  for (guint i = 0; i < 2; i++)
    {
      g_autofree char *words = g_strdup_printf (
          "stack=megatron strategy=optim pp=4 vpp=%d gbs=16 seq=2048 pp_overlap=%s", 2 + _i,
          overlaps[i]);
      Pipeline p = { .model = model, .cluster = cluster };
      PlanTrace *traces[MOST_STAGES];
      SimPasses passes;
      guint n_steps;
      p.of = test_case (model, cluster, words);
      for (p.n = 0; p.n < 4; p.n++)
        {
          p.schedules[p.n] = test_lower (p.of, 2 * p.n);
          const SimCostInput input = sim_cost_input (p.of, p.schedules[p.n]);
          p.costs[p.n] = sim_cost_new (&input, NULL);
        }
      const SimPipeline pipeline = { (const PlanSchedule *const *)p.schedules, p.n };
      const SimCost *const *costs = (const SimCost *const *)p.costs;
      ck_assert (sim_time_stages (&pipeline, costs, traces, &n_steps, NULL));
      ck_assert (sim_passes_run (&pipeline, costs, NULL, &passes));
      step_ns[i] = traces[0]->step_ns;
      ck_assert_int_eq (passes.step_ns, step_ns[i]);
      for (guint s = 0; s < p.n; s++)
        {
          plan_trace_free (traces[s]);
          plan_schedule_free (p.schedules[s]);
          sim_cost_free (p.costs[s]);
        }
      plan_case_free (p.of);
    }
  ck_assert_int_gt (step_ns[1], step_ns[0]);
}
END_TEST

/* The passes of stage `r` in order. */
static guint
list_both (const Shape *t, gint64 r, Pass *out)
{
  Pass forward[MOST_PASSES], backward[MOST_PASSES];
  const gint64 all = pipeline_passes (t->m, t->group, t->n_virtual, FALSE, forward);
  const gint64 ahead = MIN (2 * (t->n - 1 - r) + (t->n_virtual - 1) * t->group, all);
  guint n = 0;
  pipeline_passes (t->m, t->group, t->n_virtual, TRUE, backward);
  for (gint64 i = 0; i < ahead; i++)
    out[n++] = forward[i];
  for (gint64 i = 0; i < all; i++)
    {
      if (ahead + i < all)
        out[n++] = forward[ahead + i];
      out[n++] = backward[i];
    }
  return n;
}

/* What PyTorch's _add_unshard_reshard makes of these passes, and what its reductions do: '+' begins
 * to gather a virtual stage's weights, '-' drops them. It looks for the next three virtual stages
 * from each pass on. */
static char *
write_down_weights (const Shape *t, gint64 r)
{
  Pass passes[2 * MOST_PASSES];
  gboolean is_active[16] = { FALSE };
  const guint n = list_both (t, r, passes);
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < n; i++)
    {
      gint64 next[3];
      guint n_next = 0;
      gboolean is_next[16] = { FALSE };
      for (guint k = i; k < n && n_next < 3; k++)
        if (!is_next[passes[k].virtual_stage])
          {
            next[n_next++] = passes[k].virtual_stage;
            is_next[passes[k].virtual_stage] = TRUE;
          }
      for (gint64 v = 0; v < t->n_virtual; v++)
        if (is_active[v] && !is_next[v])
          {
            g_string_append_printf (text, "-%d", (int)v);
            is_active[v] = FALSE;
          }
      for (guint k = 0; k < n_next; k++)
        if (!is_active[next[k]])
          {
            g_string_append_printf (text, "+%d", (int)next[k]);
            is_active[next[k]] = TRUE;
          }
      g_string_append_printf (text, "%c%d", passes[i].is_backward ? 'B' : 'F',
                              (int)passes[i].virtual_stage);
      if (!passes[i].is_backward || passes[i].micro_batch + 1 < t->m)
        continue;
      g_string_append_printf (text, "-%d", (int)passes[i].virtual_stage);
      is_active[passes[i].virtual_stage] = FALSE;
    }
  return g_string_free (text, FALSE);
}

/* The virtual stage that begins or, for backward passes, ends with a layer; -1: there is none. */
static int
virtual_stage_at (const PlanStage *stage, gint64 layer, gboolean is_backward)
{
  for (gint64 i = 0; i < stage->n_virtual; i++)
    {
      const PlanStage one = plan_stage_virtual (stage, i);
      if (layer == (is_backward ? one.first + one.layers - 1 : one.first))
        return (int)i;
    }
  return -1;
}

/* The same, of a stage's schedule, by the first layer of each virtual stage. */
static char *
find_weights (const Pipeline *p, guint stage)
{
  const PlanSchedule *schedule = p->schedules[stage];
  const PlanStage part = plan_stage_of (p->model, p->of->stack, &p->of->plan, stage);
  GString *text = g_string_new (NULL);
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const gboolean is_backward = op->kind == PLAN_OP_ATTENTION_BWD;
      const gboolean gathers = op->kind == PLAN_OP_ALL_GATHER, drops = op->kind == PLAN_OP_FREE;
      const PlanRef *ref = &op->refs[is_backward        ? PLAN_REF_ATTENTION_BWD_out
                                     : gathers || drops ? 0
                                                        : PLAN_REF_ATTENTION_out];
      if (op->kind != PLAN_OP_ATTENTION && !is_backward && !gathers && !drops)
        continue;
      const char *name = plan_schedule_buffer (schedule, (guint)ref->array)->name;
      if ((gathers && strcmp (name, "landing.layer") != 0)
          || (drops && strcmp (name, "weights.layer") != 0))
        continue;
      const gint64 layer = plan_cursor_index (&cursor, ref) % part.layers;
      const int at = virtual_stage_at (&part, layer, is_backward);
      if (at >= 0)
        g_string_append_printf (text, "%c%d",
                                gathers       ? '+'
                                : drops       ? '-'
                                : is_backward ? 'B'
                                              : 'F',
                                at);
    }
  return g_string_free (text, FALSE);
}

/* Of more than three virtual stages the next three are whole; of fewer, all stay from the first to
 * their last pass. */
START_TEST (weights_of_the_next_three_are_whole)
{
  static const char *const words[]
      = { "pp=2 vpp=2 gbs=16", "pp=2 vpp=3 gbs=16", "pp=2 vpp=4 gbs=16",  "pp=2 vpp=4 gbs=64",
          "pp=4 vpp=4 gbs=16", "pp=4 vpp=6 gbs=64", "pp=2 vpp=12 gbs=32", "pp=4 vpp=4 gbs=160" };
  g_autoptr (PlanModel) model
      = plan_model_new ("layers=48,hidden=64,ffn=128,heads=4,vocab=128,max_seq=64,tied=off", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_autofree char *all = g_strconcat ("stack=fsdp2 strategy=optim_grads seq=64 ", words[_i], NULL);
  Pipeline p = { .model = model, .cluster = cluster };
  p.of = test_case (model, cluster, all);
  const gint64 *value = p.of->plan.value;
  p.n = (guint)value[PLAN_PP];
  const Shape t = { .n = value[PLAN_PP],
                    .n_virtual = value[PLAN_VPP],
                    .m = plan_micro_batches (&p.of->plan, cluster),
                    .group = plan_stage_group (&p.of->plan) };
  for (guint i = 0; i < p.n; i++)
    {
      p.schedules[i] = test_lower (p.of, i * 8 / p.n);
      g_autofree char *wanted = write_down_weights (&t, i), *found = find_weights (&p, i);
      ck_assert_str_eq (found, wanted);
      plan_schedule_free (p.schedules[i]);
    }
  plan_case_free (p.of);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-batches");
  TCase *tcase = tcase_create ("written down");
  tcase_set_timeout (tcase, 1800);
  tcase_add_loop_test (tcase, batches_are_those_that_are_described, 0, 7);
  tcase_add_loop_test (tcase, ends_are_overlapped_as_described, 0, 16);
  tcase_add_loop_test (tcase, batches_take_longer, 0, 2);
  tcase_add_loop_test (tcase, weights_of_the_next_three_are_whole, 0, 8);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
