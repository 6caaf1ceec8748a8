/* SPDX-License-Identifier: Apache-2.0 */
/* ep_overlap: tokens of one micro batch travel while another one computes. A forward pass of one
 * micro batch runs beside a backward pass of an earlier one, layer by layer: the first layer
 * forward beside the last one backward (Megatron-LM's combined_1f1b.py 35-310 and
 * model_chunk_schedule_plan.py 236-303, 540-610 at d98e8a64). Of the passes with more layers, the
 * last ones run alone.
 *
 * Without a pipeline the earlier micro batch is the one before; the first forward pass and the last
 * backward pass of a step run alone. In an interleaved pipeline the two passes are those of a turn,
 * and passes before and after the turns run alone; see lower-interleaved.c.
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

struct _PlanLowerPair
{
  PlanLower *lower;
  PlanLayerPass pass[N_WAYS]; /* through the layer at hand */
  PlanStage here[N_WAYS];
  gint64 micro_batch[N_WAYS];
  gboolean is_away[N_WAYS]; /* its rows are being sent on the stream of experts */
  GArray *owed[N_WAYS];     /* see PlanLowerCombined */
  PlanLowerBackward back;
  PlanLowerPass half; /* the one at hand */
  gboolean is_echo;   /* both halves are echoes of those of an earlier pair */
};

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
turn_to (PlanLowerPair *self, guint way)
{
  PlanLower *lower = self->lower;
  lower->now.here = self->here[way];
  lower->now.row = self->micro_batch[way] % lower->rows;
  lower->now.is_first_micro_batch = self->micro_batch[way] == 0;
  lower->now.is_backward = way == BACK;
}

/* Makes compute wait for the rows that were sent for a pass. */
static void
arrive (PlanLowerPair *self, guint way)
{
  turn_to (self, way);
  if (self->is_away[way])
    plan_lower_arrive (self->lower, way, self->owed[way]);
  self->is_away[way] = FALSE;
}

static void
go (PlanLowerPair *self, guint way, guint end)
{
  if (way == AHEAD)
    plan_layer_go_forward (&self->pass[way], end);
  else
    plan_layer_go_backward (&self->pass[way], end);
}

static void
mark_ready (PlanLowerPair *self, guint way)
{
  plan_lower_emit (self->lower, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL,
                   ready (self->lower, way));
}

static void
compute (PlanLowerPair *self, guint way, guint end)
{
  arrive (self, way);
  go (self, way, end);
  mark_ready (self, way);
}

static void
travel (PlanLowerPair *self, guint way, guint end)
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

static PlanLowerUnit
unit_of (const PlanLower *lower, gint64 layer)
{
  return (PlanLowerUnit){ .loop = -1,
                          .offset = (gint32)layer,
                          .is_module = plan_lower_is_module (lower, layer) };
}

/* Begins a layer's backward pass, up to its experts. */
static Parts
begin_back (PlanLowerPair *self, gint64 layer)
{
  PlanLower *lower = self->lower;
  const PlanLowerKeep keep = plan_lower_keep (lower, layer);
  const Parts parts = parts_of (&lower->graphs->of[keep.kind]);
  turn_to (self, BACK);
  plan_lower_run_to_layer (lower, &self->back);
  plan_layer_begin_backward (&self->pass[BACK], lower, unit_of (lower, layer), keep);
  self->pass[BACK].layer.delays = ON (lower, EP_DELAY_WGRAD);
  travel (self, BACK, parts.back);
  return parts;
}

/* Begins a layer's forward pass, up to the rows that are sent. */
static Parts
begin_ahead (PlanLowerPair *self, gint64 layer)
{
  PlanLower *lower = self->lower;
  const PlanLowerUnit to = unit_of (lower, layer);
  const PlanLowerKeep keep = plan_lower_keep (lower, layer);
  const Parts parts = parts_of (&lower->graphs->of[keep.kind]);
  arrive (self, AHEAD);
  plan_lower_await_unit (lower, to, 0);
  if (to.is_module)
    plan_lower_begin_module (lower, to);
  plan_layer_begin_forward (&self->pass[AHEAD], lower, to, keep);
  compute (self, AHEAD, parts.sent);
  return parts;
}

/* Lowers the backward pass of what a prediction module has before its layer. */
static void
leave_module (PlanLowerPair *self, PlanLowerUnit unit)
{
  turn_to (self, BACK);
  plan_lower_end_module (self->lower, unit);
  mark_ready (self, BACK);
}

/* Completes the weight gradients of the layer at hand, which may have been delayed. */
static void
end_back (PlanLowerPair *self)
{
  turn_to (self, BACK);
  plan_layer_catch_up (&self->pass[BACK]);
  plan_layer_end_backward (&self->pass[BACK]);
}

/* Lowers one layer forward and one backward (TransformerLayerSchedulePlan.run), or either alone
 * where the other pass has no layer left. */
static void
combine_layers (PlanLowerPair *self, gint64 i)
{
  PlanLower *lower = self->lower;
  const PlanStage *ahead = &self->here[AHEAD], *back = &self->here[BACK];
  const gboolean goes_ahead = i < ahead->layers, goes_back = i < back->layers;
  const Parts b
      = goes_back ? begin_back (self, back->first + back->layers - 1 - i) : (Parts){ .all = 0 };
  const Parts f = goes_ahead ? begin_ahead (self, ahead->first + i) : (Parts){ .all = 0 };
  if (goes_back)
    compute (self, BACK, b.experts);
  if (f.waits)
    plan_lower_emit (lower, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                     PLAN_WAITS (ready (lower, AHEAD)), PLAN_REF_NONE);
  if (goes_ahead)
    travel (self, AHEAD, f.experts);
  if (goes_back)
    {
      turn_to (self, BACK);
      plan_layer_catch_up (&self->pass[BACK]);
      self->pass[BACK].layer.delays = ON (lower, EP_DELAY_WGRAD);
      travel (self, BACK, b.sent);
    }
  if (goes_ahead)
    {
      compute (self, AHEAD, f.back);
      travel (self, AHEAD, f.all);
    }
  if (goes_back)
    compute (self, BACK, 0);
  if (goes_back && self->pass[BACK].layer.unit.is_module)
    leave_module (self, self->pass[BACK].layer.unit);
  if (i + 1 < back->layers)
    end_back (self);
}

PlanLowerPair *
plan_lower_begin_pair (PlanLower *lower, PlanStagePass ahead, PlanStagePass back)
{
  PlanLowerPair *self = g_new0 (PlanLowerPair, 1);
  const PlanStagePass of[N_WAYS] = { ahead, back };
  self->lower = lower;
  for (guint way = 0; way < N_WAYS; way++)
    {
      self->here[way] = plan_stage_virtual (&lower->stage, of[way].virtual_stage);
      self->micro_batch[way] = of[way].micro_batch;
      self->owed[way] = g_array_new (FALSE, FALSE, sizeof (PlanRef));
    }
  turn_to (self, AHEAD);
  self->half.half = 1;
  self->half.back = back.virtual_stage;
  self->half.is_first = back.micro_batch == 0;
  self->is_echo = plan_lower_begin_pass (lower, &self->half);
  if (self->is_echo)
    return self;
  plan_lower_begin_forward (lower);
  turn_to (self, BACK);
  plan_lower_begin_backward (lower, &self->back, FALSE);
  mark_ready (self, BACK);
  return self;
}

void
plan_lower_pair_layers (PlanLowerPair *self)
{
  PlanLower *lower = self->lower;
  if (self->is_echo)
    return;
  lower->combined.is_now = TRUE;
  for (gint64 i = 0; i < MAX (self->here[AHEAD].layers, self->here[BACK].layers); i++)
    combine_layers (self, i);
  lower->combined.is_now = FALSE;
  arrive (self, AHEAD);
  plan_lower_end_pass (lower, &self->half);
}

void
plan_lower_end_pair (PlanLowerPair *self)
{
  PlanLower *lower = self->lower;
  turn_to (self, AHEAD);
  self->half.half = 2;
  if (!plan_lower_begin_pass (lower, &self->half))
    {
      g_assert (!self->is_echo);
      if (self->here[BACK].layers > 0)
        end_back (self);
      turn_to (self, AHEAD);
      plan_lower_end_forward (lower);
      turn_to (self, BACK);
      plan_lower_run_to_layer (lower, &self->back);
      plan_lower_end_backward (lower, &self->back);
      plan_lower_end_pass (lower, &self->half);
    }
  for (guint way = 0; way < N_WAYS; way++)
    g_array_unref (self->owed[way]);
  g_free (self);
}

void
plan_lower_pair (PlanLower *self, PlanStagePass ahead, PlanStagePass back)
{
  PlanLowerPair *pair = plan_lower_begin_pair (self, ahead, back);
  plan_lower_pair_layers (pair);
  plan_lower_end_pair (pair);
}

static void
combine (PlanLower *lower, gint64 micro_batch)
{
  plan_lower_pair (lower, (PlanStagePass){ .micro_batch = micro_batch + 1 },
                   (PlanStagePass){ .micro_batch = micro_batch });
}

/* The first combined pair of passes is lowered by itself: its gradients are not added to others
 * yet. The others are a repeat of two pairs, as activations lie in two rows. */
static void
combine_all (PlanLower *lower, gint64 n)
{
  for (gint64 i = 0; i < n;)
    {
      const gint64 rounds = (n - i) / lower->rows;
      if (i == 0 || rounds < 2)
        {
          combine (lower, i++);
          continue;
        }
      const PlanLowerUnit round = plan_lower_begin_repeat (lower, "m", 0, rounds, 1);
      for (gint64 k = 0; k < lower->rows; k++)
        combine (lower, i + k);
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
  /* A smaller last group comes back to the last virtual stage before an earlier one has left. Where
   * passes are combined, a prediction module may begin a pass before it has ended another. */
  const gint64 m = self->place.micro_batches;
  const gboolean is_ragged = value[PLAN_VPP] > 1 && plan_stage_whole_groups (self->plan, m) < m;
  self->policy.head_rows = (is_piped && (plan_stage_is_afab (self->plan) || is_ragged))
                                   || (self->combined.is_planned && self->stage.modules > 0)
                               ? self->rows
                               : 1;
}

void
plan_lower_combined (PlanLower *self)
{
  const gint64 n = self->place.micro_batches;
  self->now.row = 0;
  self->now.is_first_micro_batch = TRUE;
  plan_lower_forward (self);
  combine_all (self, n - 1);
  self->now.row = (n - 1) % self->rows;
  self->now.is_first_micro_batch = n == 1;
  plan_lower_backward (self, TRUE);
  self->now.row = 0;
}
