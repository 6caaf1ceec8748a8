/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/explain-memory.h"

#include "planner/base/units.h"
#include "planner/plan/stages.h"
#include "planner/schedule/meter.h"

/* --- buffers that are live at the peak ------------------------------------------------------ */

typedef struct
{
  const PlanSchedule *schedule;
  guint64 granule;
  PlanMeter meter;
  gint64 *live; /* by array of buffers */
} Count;

static guint64
bytes_of (const Count *self, guint array)
{
  return plan_units_round_up (plan_schedule_buffer_bytes (self->schedule, array), self->granule);
}

/* Goes on until so many bytes are live. TRUE: that happened before the section's end. */
static gboolean
count_section (Count *self, PlanSection section, guint64 until)
{
  PlanCursor cursor;
  const PlanOp *op;
  plan_cursor_start (&cursor, self->schedule, section);
  while ((op = plan_cursor_next (&cursor)))
    {
      if (op->kind != PLAN_OP_ALLOC && op->kind != PLAN_OP_FREE)
        continue;
      const guint array = (guint)op->refs[PLAN_REF_ALLOC_buf].array;
      plan_meter_apply (&self->meter, &cursor, op, bytes_of (self, array));
      self->live[array] += op->kind == PLAN_OP_ALLOC ? 1 : -1;
      if (self->meter.total == until)
        return TRUE;
    }
  return FALSE;
}

static gint
compare (gconstpointer a, gconstpointer b)
{
  const AdviseResident *x = a, *y = b;
  const guint64 x_bytes = x->each * (guint64)x->at_peak, y_bytes = y->each * (guint64)y->at_peak;
  if (x->category != y->category)
    return x->category < y->category ? -1 : 1;
  return x_bytes > y_bytes ? -1 : x_bytes < y_bytes;
}

/* Goes through a step twice: once to find its peak, then up to it. */
GArray *
advise_residents (const AdvisePrediction *prediction)
{
  const PlanSchedule *schedule = prediction->schedule;
  const guint n = plan_schedule_n_buffers (schedule);
  g_autofree gint64 *live = g_new0 (gint64, n), *resting = NULL;
  Count count = { .schedule = schedule,
                  .granule = prediction->of->stack->memory.allocation_bytes,
                  .live = live };
  GArray *residents = g_array_new (FALSE, TRUE, sizeof (AdviseResident));
  count_section (&count, PLAN_SECTION_SETUP, 0);
  resting = g_memdup2 (live, n * sizeof *live);
  plan_meter_begin_step (&count.meter);
  Count first = count;
  first.live = g_memdup2 (live, n * sizeof *live);
  count_section (&first, PLAN_SECTION_STEP, 0);
  g_free (first.live);
  if (first.meter.peak_total > count.meter.total)
    count_section (&count, PLAN_SECTION_STEP, first.meter.peak_total);
  for (guint i = 0; i < n; i++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (schedule, i);
      const AdviseResident resident
          = { buffer->category, buffer->name, bytes_of (&count, i), live[i], resting[i] };
      if (buffer->category != PLAN_CATEGORY_HOST && (live[i] > 0 || resting[i] > 0))
        g_array_append_val (residents, resident);
    }
  g_array_sort (residents, compare);
  return residents;
}

/* --- the arithmetic ------------------------------------------------------------------------ */

static void
clear_line (gpointer line)
{
  g_free (((AdviseMemoryLine *)line)->formula);
}

/* The number of ranks among which a parameter's state is divided: of experts, and of others. */
typedef struct
{
  gint64 others, experts;
} Sharers;

static Sharers
sharers_of (const AdvisePrediction *p, gboolean is_shared, gboolean among_replicas)
{
  const Plan *plan = &p->of->plan;
  const gint64 all = plan_data_parallel (plan, p->of->cluster) * plan->value[PLAN_CP];
  const gint64 replicas = among_replicas ? 1 : plan->value[PLAN_DP_OUTER];
  if (!is_shared)
    return (Sharers){ 1, 1 };
  return (Sharers){ all / replicas, plan_layout_expert_data_parallel (plan, all) / replicas };
}

/* Adds a line with `each` bytes per parameter that a rank of a tensor-parallel group and stage
 * has. */
static void
add_parameters (GArray *lines, const AdvisePrediction *p, const char *what, double each,
                Sharers sharers, guint64 bytes)
{
  const gint64 *value = p->of->plan.value;
  guint64 parts[PLAN_N_PARTS];
  const guint64 all = plan_model_count (p->of->model, parts);
  const guint64 of_experts = parts[PLAN_PART_EXPERTS];
  const double others = (double)(all - of_experts) / (double)(value[PLAN_TP] * value[PLAN_PP]);
  const double experts
      = (double)of_experts / (double)value[PLAN_PP] / (double)(value[PLAN_EP] * value[PLAN_ETP]);
  const double bytes_here
      = each * (others / (double)sharers.others + experts / (double)sharers.experts);
  g_autofree char *more = of_experts > 0
                              ? g_strdup_printf (" + %.4g billion of experts / %" G_GINT64_FORMAT,
                                                 1e-9 * experts, sharers.experts)
                              : g_strdup ("");
  const AdviseMemoryLine line
      = { what,
          g_strdup_printf ("%g B x (%.4g billion parameters / %" G_GINT64_FORMAT " ranks%s)", each,
                           1e-9 * others, sharers.others, more),
          bytes_here / 1048576, bytes };
  g_array_append_val (lines, line);
}

/* Adds the activations of layers whose attention saves no scores: 34 bytes per token and channel,
 * or with full recompute only the input, 2 bytes (Korthikanti et al. 2022, arXiv 2205.05198,
 * section 4). */
static void
add_activations (GArray *lines, const AdvisePrediction *p, guint64 bytes)
{
  const gint64 *value = p->of->plan.value;
  const PlanModel *model = p->of->model;
  const gboolean is_full = value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL;
  const gint64 tokens = value[PLAN_MBS] * value[PLAN_SEQ];
  const gint64 split = value[PLAN_CP] * (value[PLAN_SP] == PLAN_SP_ON ? value[PLAN_TP] : 1);
  const gint64 m = plan_micro_batches (&p->of->plan, p->of->cluster);
  const gint64 in_flight = plan_stage_is_afab (&p->of->plan) ? m : MIN (value[PLAN_PP], m);
  const double layers = (double)model->layers / (double)value[PLAN_PP] * (double)in_flight;
  const double each = is_full ? 2 : 34;
  const AdviseMemoryLine line
      = { "activations",
          g_strdup_printf ("%g B x %" G_GINT64_FORMAT " tokens x %" G_GINT64_FORMAT
                           " wide x %g layers / %" G_GINT64_FORMAT " ranks",
                           each, tokens, model->hidden, layers, split),
          each * (double)tokens * (double)model->hidden * layers / (double)split / 1048576, bytes };
  g_array_append_val (lines, line);
}

/* Adds a line without a formula, for bytes that the closed forms above do not count. */
static void
add_left_out (GArray *lines, const char *what, guint64 bytes)
{
  const AdviseMemoryLine line = { what, NULL, 0, bytes };
  if (bytes > 0)
    g_array_append_val (lines, line);
}

GArray *
advise_explain_memory (const AdvisePrediction *p)
{
  const Plan *plan = &p->of->plan;
  const PlanMemory *m = &p->trace->memory;
  const guint64 *by = m->by_category;
  const gboolean is_hfsdp = plan->value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM;
  GArray *lines = g_array_new (FALSE, TRUE, sizeof (AdviseMemoryLine));
  g_array_set_clear_func (lines, clear_line);
  add_parameters (lines, p, "weights", 2, sharers_of (p, plan_shards_weights (plan), FALSE),
                  by[PLAN_CATEGORY_WEIGHTS]);
  add_parameters (lines, p, "gradients", 4, sharers_of (p, plan_shards_grads (plan), FALSE),
                  by[PLAN_CATEGORY_MAIN_GRADS]);
  add_parameters (lines, p, "fp32 weights and moments", 12,
                  sharers_of (p, plan_shards_optimizer (plan), is_hfsdp),
                  by[PLAN_CATEGORY_MAIN_PARAMS] + by[PLAN_CATEGORY_OPTIMIZER]);
  add_activations (lines, p, by[PLAN_CATEGORY_ACTIVATIONS]);
  add_left_out (lines, "weights gathered for use", by[PLAN_CATEGORY_GATHERED]);
  add_left_out (lines, "copies of weights in other formats", by[PLAN_CATEGORY_DERIVED]);
  add_left_out (lines, "gradients on their way", by[PLAN_CATEGORY_GRAD_BUCKETS]);
  add_left_out (lines, "logits and softmax of the loss", by[PLAN_CATEGORY_LOSS]);
  add_left_out (lines, "scratch of kernels, batches", by[PLAN_CATEGORY_WORKSPACE]);
  add_left_out (lines, "workspaces of libraries", p->of->stack->memory.fixed_bytes);
  add_left_out (lines, "the allocator's slack", m->reserved - MIN (m->reserved, m->max_allocated));
  add_left_out (lines, "context and communicators", m->device - MIN (m->device, m->reserved));
  return lines;
}
