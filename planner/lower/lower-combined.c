/* SPDX-License-Identifier: Apache-2.0 */
/* ep_overlap: tokens of one micro batch travel while another one computes. The forward pass of each
 * micro batch runs beside the backward pass of the one before, layer by layer: the first layer
 * forward beside the last one backward (Megatron-LM's combined_1f1b.py 35-135 and
 * model_chunk_schedule_plan.py 236-303 at d98e8a64). The first forward pass and the last backward
 * pass run alone.
 *
 * A layer with experts has four parts: all up to the rows that are sent; sending them; the experts;
 * sending rows back, and what joins the layer's output. The second and the fourth run on a stream
 * of their own (`experts`). They wait for what their own pass computed last and not for the other
 * pass (fine_grained_callables.py; pipeline_parallel/utils.py, ScheduleNode). Buffers that they
 * allocate are of that stream's pool, and are freed once compute waits for them. */
#include "config.h"

#include "planner/lower/lower-combined.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"

#define ON(self, field) ((self)->plan->value[PLAN_##field] == PLAN_##field##_ON)

enum
{
  AHEAD, /* forward pass; BACK: backward pass */
  BACK,
  N_WAYS
};

typedef struct
{
  PlanLower *lower;
  PlanLayerPass pass[N_WAYS];
  gint64 micro_batch[N_WAYS];
  gboolean is_away[N_WAYS]; /* its rows are being sent on the stream of experts */
  GArray *owed[N_WAYS];     /* see PlanLowerCombined */
} Combined;

/* The parts of a layer, each as the number of nodes before it, and the number of all nodes. A layer
 * without experts has two parts and sends nothing. */
typedef struct
{
  guint sent, experts, back, all;
  gboolean waits; /* the host waits until it knows how many rows there are */
} Parts;

static Parts
parts_of (const PlanLayerGraph *net)
{
  Parts parts = { .all = net->n_nodes };
  guint n = 0, sum = 0;
  for (guint i = 0; i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      parts.waits |= node->waits;
      if (node->out == PLAN_VALUE_HIDDEN2)
        sum = i + 1;
      if (node->kind == PLAN_NODE_SEND_ROWS)
        *(n++ == 0 ? &parts.sent : &parts.back) = i;
    }
  if (n == 0)
    {
      parts.sent = parts.experts = sum;
      parts.back = parts.all;
    }
  else
    parts.experts = parts.sent + 1;
  return parts;
}

static PlanRef
ready (const PlanLower *lower, guint way)
{
  PlanRef event = plan_lower_ref (lower->combined.ready);
  event.offset = (gint32)way;
  return event;
}

static void
turn_to (Combined *self, guint way)
{
  PlanLower *lower = self->lower;
  lower->now.row = self->micro_batch[way] % lower->rows;
  lower->now.is_first_micro_batch = self->micro_batch[way] == 0;
  lower->now.is_backward = way == BACK;
}

/* Makes compute wait for the rows that were sent for a pass. */
static void
arrive (Combined *self, guint way)
{
  turn_to (self, way);
  if (self->is_away[way])
    plan_lower_arrive (self->lower, way, self->owed[way]);
  self->is_away[way] = FALSE;
}

static void
go (Combined *self, guint way, guint end)
{
  if (way == AHEAD)
    plan_layer_go_forward (&self->pass[way], end);
  else
    plan_layer_go_backward (&self->pass[way], end);
}

static void
mark_ready (Combined *self, guint way)
{
  plan_lower_emit (self->lower, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL,
                   ready (self->lower, way));
}

static void
compute (Combined *self, guint way, guint end)
{
  arrive (self, way);
  go (self, way, end);
  mark_ready (self, way);
}

static void
travel (Combined *self, guint way, guint end)
{
  PlanLower *lower = self->lower;
  if (self->pass[way].at == end)
    return;
  turn_to (self, way);
  plan_lower_begin_apart (lower, way, self->owed[way]);
  go (self, way, end);
  plan_lower_end_apart (lower, way);
  self->is_away[way] = TRUE;
}

/* Lowers one layer forward and one backward (TransformerLayerSchedulePlan.run). */
static void
combine_layers (Combined *self, gint64 ahead, gint64 back)
{
  PlanLower *lower = self->lower;
  const PlanLowerUnit to = { .loop = -1, .offset = (gint32)ahead };
  const PlanLowerUnit from = { .loop = -1, .offset = (gint32)back };
  const PlanLowerKeep keep = plan_lower_keep (lower, ahead), kept = plan_lower_keep (lower, back);
  const Parts f = parts_of (&lower->graphs->of[keep.kind]);
  const Parts b = parts_of (&lower->graphs->of[kept.kind]);
  const gboolean delays = ON (lower, EP_DELAY_WGRAD);
  turn_to (self, BACK);
  plan_layer_begin_backward (&self->pass[BACK], lower, from, kept);
  self->pass[BACK].layer.delays = delays;
  travel (self, BACK, b.back);
  arrive (self, AHEAD);
  plan_lower_await_unit (lower, to, 0);
  plan_layer_begin_forward (&self->pass[AHEAD], lower, to, keep);
  compute (self, AHEAD, f.sent);
  compute (self, BACK, b.experts);
  if (f.waits)
    plan_lower_emit (lower, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                     PLAN_WAITS (ready (lower, AHEAD)), PLAN_REF_NONE);
  travel (self, AHEAD, f.experts);
  turn_to (self, BACK);
  plan_layer_catch_up (&self->pass[BACK]);
  self->pass[BACK].layer.delays = delays;
  travel (self, BACK, b.sent);
  compute (self, AHEAD, f.back);
  travel (self, AHEAD, f.all);
  compute (self, BACK, 0);
  plan_layer_catch_up (&self->pass[BACK]);
  plan_layer_end_backward (&self->pass[BACK]);
}

static void
combine (Combined *self, gint64 micro_batch)
{
  PlanLower *lower = self->lower;
  const gint64 layers = lower->stage.layers;
  self->micro_batch[AHEAD] = micro_batch + 1;
  self->micro_batch[BACK] = micro_batch;
  turn_to (self, AHEAD);
  plan_lower_begin_forward (lower);
  turn_to (self, BACK);
  plan_lower_begin_backward (lower);
  mark_ready (self, BACK);
  lower->combined.is_now = TRUE;
  for (gint64 l = 0; l < layers; l++)
    combine_layers (self, l, layers - 1 - l);
  lower->combined.is_now = FALSE;
  arrive (self, AHEAD);
  plan_lower_end_forward (lower);
  turn_to (self, BACK);
  plan_lower_end_backward (lower);
}

/* The first combined pair of passes is lowered by itself: its gradients are not added to others
 * yet. The others are a repeat of two pairs, as activations lie in two rows. */
static void
combine_all (Combined *self, gint64 n)
{
  PlanLower *lower = self->lower;
  for (gint64 i = 0; i < n;)
    {
      const gint64 rounds = (n - i) / lower->rows;
      if (i == 0 || rounds < 2)
        {
          combine (self, i++);
          continue;
        }
      const PlanLowerUnit round = plan_lower_begin_repeat (lower, "m", 0, rounds, 1);
      for (gint64 k = 0; k < lower->rows; k++)
        combine (self, i + k);
      plan_lower_end_units (lower, round);
      i += rounds * lower->rows;
    }
}

void
plan_lower_take_rows (PlanLower *self)
{
  const gint64 *value = self->plan->value;
  const gboolean is_piped
      = value[PLAN_PP] > 1 && (value[PLAN_TASK] == PLAN_TASK_TRAIN || value[PLAN_VPP] > 1);
  self->combined.is_planned = ON (self, EP_OVERLAP) && self->place.micro_batches > 1;
  self->rows
      = is_piped ? plan_stage_rows (self->plan, self->place.stage_number, self->place.micro_batches)
        : self->combined.is_planned ? N_WAYS
                                    : 1;
  /* Gradients that are being sent while the next backward pass runs. */
  const gboolean goes_on
      = value[PLAN_PP] > 1 && self->stack->pipeline.trades == PLAN_TRADES_ON_DEVICE;
  self->policy.grad_rows = self->stage.n_virtual > 1 || goes_on ? self->rows : 1;
  /* A smaller last group comes back to the last virtual stage before an earlier one has left. */
  const gint64 m = self->place.micro_batches;
  const gboolean is_ragged = value[PLAN_VPP] > 1 && plan_stage_whole_groups (self->plan, m) < m;
  self->policy.head_rows
      = is_piped && (plan_stage_is_afab (self->plan) || is_ragged) ? self->rows : 1;
}

void
plan_lower_combined (PlanLower *self)
{
  const gint64 n = self->place.micro_batches;
  Combined *combined = g_new0 (Combined, 1);
  g_autoptr (GArray) ahead = g_array_new (FALSE, FALSE, sizeof (PlanRef));
  g_autoptr (GArray) back = g_array_new (FALSE, FALSE, sizeof (PlanRef));
  combined->lower = self;
  combined->owed[AHEAD] = ahead;
  combined->owed[BACK] = back;
  self->now.row = 0;
  self->now.is_first_micro_batch = TRUE;
  plan_lower_forward (self);
  combine_all (combined, n - 1);
  combined->micro_batch[BACK] = n - 1;
  turn_to (combined, BACK);
  plan_lower_backward (self, TRUE);
  self->now.row = 0;
  g_free (combined);
}
