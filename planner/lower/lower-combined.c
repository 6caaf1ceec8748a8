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
 * allocate are of that stream's pool, and are freed once compute waits for them.
 *
 * Where weights are sharded (Megatron-FSDP), a layer is not gathered as a whole: hooks of its
 * modules ask for the bucket that they read, experts or all else, as compute comes to the first of
 * its parameters (megatron_fsdp.py 563-600 and 793-815, 915-935). A hook gathers further buckets in
 * the order of its pass, up to half a communication unit; but not a forward pass's, as long as the
 * backward pass beside it has not left the layer: to the hook that is recompute. Behind a layer's
 * forward pass its weights are freed, or in that case marked, to be freed by the next gather
 * (985-1010); behind its backward pass both are freed (683-704). So the first layers of a forward
 * pass are gathered while compute waits. */
#include "config.h"

#include "planner/lower/lower-combined.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-offload.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"

#define ON(self, field) ((self)->plan->value[PLAN_##field] == PLAN_##field##_ON)

enum
{
  AHEAD, /* forward pass; BACK: backward pass */
  BACK,
  N_WAYS
};

/* The shares of a layer's weights that modules gather separately: experts, and all others. */
typedef enum
{
  MAIN,
  EXPERTS,
  N_SHARES
} Share;

typedef struct
{
  enum
  {
    ABSENT,
    WANTED, /* about to be gathered */
    MARKED, /* to be dropped when something else is gathered */
    PRESENT
  } state;
  gboolean is_awaited; /* compute has waited for it */
  gint64 elements;
} Residence;

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
  gboolean has[N_WAYS];
  Residence *shares; /* by layer and share, where weights are gathered so; else NULL */
  gint64 left;       /* layers that the backward pass has not left */
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

static PlanLowerUnit
unit_of (const PlanLower *lower, gint64 layer)
{
  return (PlanLowerUnit){ .loop = -1,
                          .offset = (gint32)layer,
                          .is_module = plan_lower_is_module (lower, layer) };
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

/* --- weights gathered by share ---------------------------------------------------------------- */

typedef void (*Visit) (PlanLower *lower, PlanBucketKind kind, gint32 layer);

/* Visits the buckets of a share, or those of them that are sharded. Shares are numbered in the
 * order of layers, which is that of their buckets. */
static void
each_bucket (PlanLower *lower, gint64 number, Visit visit)
{
  const gint32 layer = (gint32)(number / N_SHARES);
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_bucket_is_unit (kind)
        && plan_bucket_is_of_experts (kind) == (number % N_SHARES == EXPERTS)
        && plan_lower_holds (lower, kind, PLAN_NO_UNIT, layer)
        && lower->bucket[kind].shards_weights)
      visit (lower, kind, layer);
}

static void
gather_bucket (PlanLower *lower, PlanBucketKind kind, gint32 layer)
{
  plan_lower_gather_bucket (lower, kind, PLAN_NO_UNIT, layer, FALSE);
}

static void
await_bucket (PlanLower *lower, PlanBucketKind kind, gint32 layer)
{
  plan_lower_wait (lower, plan_lower_unit_ref (lower->bucket[kind].gathered, PLAN_NO_UNIT, layer));
}

static void
free_bucket (PlanLower *lower, PlanBucketKind kind, gint32 layer)
{
  plan_lower_free (lower, plan_lower_weights_ref (lower, kind, PLAN_NO_UNIT, layer, FALSE));
}

/* Elements of a share. Experts that are not sharded count, too (param_and_grad_buffer.py 4487). */
static gint64
elements_of (const PlanLower *lower, gint64 number)
{
  gint64 elements = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_bucket_is_unit (kind)
        && plan_bucket_is_of_experts (kind) == (number % N_SHARES == EXPERTS)
        && plan_lower_holds (lower, kind, PLAN_NO_UNIT, (gint32)(number / N_SHARES)))
      elements += (gint64)lower->layout.buckets[kind].padded;
  return elements;
}

static void
await_share (PlanLowerPair *self, gint64 number)
{
  if (!self->shares[number].is_awaited)
    each_bucket (self->lower, number, await_bucket);
  self->shares[number].is_awaited = TRUE;
}

static void
drop_share (PlanLowerPair *self, gint64 number)
{
  if (self->shares[number].state == ABSENT)
    return;
  await_share (self, number);
  each_bucket (self->lower, number, free_bucket);
  self->shares[number].state = ABSENT;
  self->shares[number].is_awaited = FALSE;
}

/* Frees marked shares, then gathers wanted ones, by ascending layers in both passes. Work that is
 * due once per step goes with the first micro batch, which lasts until its backward pass is over
 * (Megatron-FSDP's `microbatch_count` counts backward passes). */
static void
gather_wanted (PlanLowerPair *self)
{
  PlanLower *lower = self->lower;
  const gint64 n = N_SHARES * lower->stage.layers;
  const gboolean was_first = lower->now.is_first_micro_batch;
  lower->now.is_first_micro_batch = self->micro_batch[self->has[BACK] ? BACK : AHEAD] == 0;
  for (gint64 i = 0; i < n; i++)
    if (self->shares[i].state == MARKED)
      drop_share (self, i);
  for (gint64 i = 0; i < n; i++)
    if (self->shares[i].state == WANTED)
      {
        each_bucket (lower, i, gather_bucket);
        self->shares[i].state = PRESENT;
      }
  lower->now.is_first_micro_batch = was_first;
}

/* Whether the backward pass has not left a layer: its modules take a forward pass for recompute. */
static gboolean
is_before_backward (const PlanLowerPair *self, gint64 layer)
{
  return self->has[BACK] && layer < self->left;
}

/* A hook's request for a share, and for those behind it. What is there already may be dropped for
 * their gather, but for the share itself. */
static void
request (PlanLowerPair *self, guint way, gint64 number)
{
  PlanLower *lower = self->lower;
  const gint64 step = way == AHEAD ? 1 : -1, n = N_SHARES * lower->stage.layers;
  const gboolean looks_ahead = way == BACK || !is_before_backward (self, number / N_SHARES);
  const gint64 limit = looks_ahead ? lower->policy.comm_unit / 2 : 0;
  gboolean gathers = self->shares[number].state == ABSENT;
  self->shares[number].state = gathers ? WANTED : PRESENT;
  for (gint64 i = number + step, sum = 0; i >= 0 && i < n && sum < limit; i += step)
    {
      Residence *of = &self->shares[i];
      gathers |= of->state == ABSENT;
      of->state = of->state == ABSENT ? WANTED : of->state;
      sum += of->elements;
    }
  if (gathers)
    gather_wanted (self);
  await_share (self, number);
}

/* Behind a layer's forward pass. */
static void
leave_forward (PlanLowerPair *self, gint64 layer)
{
  for (gint64 i = N_SHARES * layer; self->shares && i < N_SHARES * (layer + 1); i++)
    if (!is_before_backward (self, layer))
      drop_share (self, i);
    else if (self->shares[i].state == PRESENT)
      self->shares[i].state = MARKED;
}

/* Starts copying a layer's activations to the host, and frees those of the layer before, whose copy
 * has ended by then. `layer` may be one past the last layer, whose activations are freed then. */
static void
offload (PlanLowerPair *self, gint64 layer)
{
  PlanLower *lower = self->lower;
  const PlanStage *here = &self->here[AHEAD];
  turn_to (self, AHEAD);
  if (layer < here->first + here->layers && plan_lower_offloads (lower, layer))
    plan_lower_offload (lower, unit_of (lower, layer), layer);
  if (layer > here->first && plan_lower_offloads (lower, layer - 1))
    plan_lower_drop_offloaded (lower, unit_of (lower, layer - 1), layer - 1);
}

/* Behind a layer's backward pass. */
static void
leave_backward (PlanLowerPair *self)
{
  self->left--;
  for (gint64 i = 0; self->shares && i < N_SHARES; i++)
    drop_share (self, N_SHARES * self->left + i);
}

static void
begin_shares (PlanLowerPair *self)
{
  const PlanLower *lower = self->lower;
  self->left = self->here[BACK].layers;
  if (!lower->combined.by_share)
    return;
  self->shares = g_new0 (Residence, N_SHARES * lower->stage.layers);
  for (gint64 i = 0; i < N_SHARES * lower->stage.layers; i++)
    {
      const gboolean is_here = !self->has[BACK] && i < N_SHARES * lower->now.units_here;
      self->shares[i].state = is_here ? PRESENT : ABSENT;
      self->shares[i].elements = elements_of (lower, i);
    }
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

/* Goes on to the next node with weights, and has them gathered. */
static void
reach_weights (PlanLowerPair *self, guint way, guint end)
{
  PlanLayerPass *pass = &self->pass[way];
  const PlanNode *node = pass->layer.net->nodes;
  guint at = pass->at;
  while (at != end && node[way == AHEAD ? at : at - 1].weight == PLAN_N_TENSORS)
    at = way == AHEAD ? at + 1 : at - 1;
  if (!self->shares || at == end)
    return;
  go (self, way, at);
  const gboolean is_expert = node[way == AHEAD ? at : at - 1].kind == PLAN_NODE_EXPERT_LINEAR;
  request (self, way, N_SHARES * pass->layer.unit.offset + (is_expert ? EXPERTS : MAIN));
  if (way == AHEAD)
    plan_lower_copy_weights (self->lower, pass->layer.unit, pass->layer.net, at, end);
}

static void
compute (PlanLowerPair *self, guint way, guint end)
{
  arrive (self, way);
  reach_weights (self, way, end);
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

/* Begins a layer's backward pass, up to its experts. */
static Parts
begin_back (PlanLowerPair *self, gint64 layer)
{
  PlanLower *lower = self->lower;
  const PlanLowerKeep keep = plan_lower_keep (lower, layer);
  const Parts parts = parts_of (lower->graphs->of[keep.kind]);
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
  const Parts parts = parts_of (lower->graphs->of[keep.kind]);
  arrive (self, AHEAD);
  if (!self->shares)
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
  leave_backward (self);
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
      leave_forward (self, ahead->first + i);
      offload (self, ahead->first + i);
    }
  if (goes_back)
    compute (self, BACK, 0);
  if (goes_back && self->pass[BACK].layer.unit.is_module)
    leave_module (self, self->pass[BACK].layer.unit);
  if (i + 1 < back->layers)
    end_back (self);
}

/* Begins two passes, or either alone where the other is NULL. */
static PlanLowerPair *
begin (PlanLower *lower, const PlanStagePass *ahead, const PlanStagePass *back, gboolean is_last)
{
  PlanLowerPair *self = g_new0 (PlanLowerPair, 1);
  const PlanStagePass *of[N_WAYS] = { ahead, back };
  self->lower = lower;
  for (guint way = 0; way < N_WAYS; way++)
    {
      self->has[way] = of[way] != NULL;
      self->owed[way] = g_array_new (FALSE, FALSE, sizeof (PlanRef));
      if (!of[way])
        continue;
      self->here[way] = plan_stage_virtual (&lower->stage, of[way]->virtual_stage);
      self->micro_batch[way] = of[way]->micro_batch;
    }
  turn_to (self, ahead ? AHEAD : BACK);
  self->half = (PlanLowerPass){ .half = 1,
                                .back = back ? back->virtual_stage : 0,
                                .is_first = back && back->micro_batch == 0,
                                .is_last = is_last,
                                .is_backward = !ahead };
  self->is_echo = ahead && back && plan_lower_begin_pass (lower, &self->half);
  if (self->is_echo)
    return self;
  if (ahead)
    plan_lower_begin_forward (lower);
  begin_shares (self);
  if (!back)
    return self;
  turn_to (self, BACK);
  plan_lower_begin_backward (lower, &self->back, is_last);
  mark_ready (self, BACK);
  return self;
}

PlanLowerPair *
plan_lower_begin_pair (PlanLower *lower, PlanStagePass ahead, PlanStagePass back)
{
  return begin (lower, &ahead, &back, FALSE);
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
  if (self->has[AHEAD])
    {
      arrive (self, AHEAD);
      offload (self, self->here[AHEAD].first + self->here[AHEAD].layers);
    }
  if (self->has[AHEAD] && self->has[BACK])
    plan_lower_end_pass (lower, &self->half);
}

/* Lowers what stands behind the layers of both passes. */
static void
end (PlanLowerPair *self)
{
  PlanLower *lower = self->lower;
  if (self->here[BACK].layers > 0)
    end_back (self);
  if (self->has[AHEAD])
    {
      turn_to (self, AHEAD);
      plan_lower_end_forward (lower);
    }
  if (!self->has[BACK])
    return;
  turn_to (self, BACK);
  plan_lower_run_to_layer (lower, &self->back);
  plan_lower_end_backward (lower, &self->back);
}

void
plan_lower_end_pair (PlanLowerPair *self)
{
  PlanLower *lower = self->lower;
  const gboolean is_pair = self->has[AHEAD] && self->has[BACK];
  turn_to (self, self->has[AHEAD] ? AHEAD : BACK);
  self->half.half = 2;
  if (!is_pair || !plan_lower_begin_pass (lower, &self->half))
    {
      g_assert (!self->is_echo);
      end (self);
      if (is_pair)
        plan_lower_end_pass (lower, &self->half);
    }
  for (gint64 i = 0; self->shares && i < N_SHARES * lower->stage.layers; i++)
    g_assert (self->shares[i].state == ABSENT);
  for (guint way = 0; way < N_WAYS; way++)
    g_array_unref (self->owed[way]);
  g_free (self->shares);
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

/* Makes room for the pairs that are left, with as much again as one for what stands behind them:
 * schedules are megabytes, and growing copies them. */
static void
reserve (PlanLower *lower, gint64 left, guint nodes)
{
  const gint64 rounds = left / lower->rows;
  const gint64 written = rounds < 2 ? left : lower->rows + left % lower->rows;
  plan_schedule_reserve (lower->schedule, (guint)(written + 1) * nodes);
}

/* The first combined pair of passes is lowered by itself: its gradients are not added to others
 * yet. The others are a repeat of two pairs, as activations lie in two rows. */
static void
combine_all (PlanLower *lower, gint64 n)
{
  const guint before = plan_schedule_n_nodes (lower->schedule);
  for (gint64 i = 0; i < n;)
    {
      const gint64 rounds = (n - i) / lower->rows;
      if (i == 0 || rounds < 2)
        {
          combine (lower, i++);
          if (i == 1)
            reserve (lower, n - 1, plan_schedule_n_nodes (lower->schedule) - before);
          continue;
        }
      const PlanLowerUnit round = plan_lower_begin_repeat (lower, "m", 0, rounds, 1);
      for (gint64 k = 0; k < lower->rows; k++)
        combine (lower, i + k);
      plan_lower_end_units (lower, round);
      i += rounds * lower->rows;
    }
}

/* Lowers a pass that has no other one beside it. */
static void
lone_pass (PlanLower *lower, gint64 micro_batch, gboolean is_backward)
{
  const PlanStagePass pass = { .micro_batch = micro_batch };
  PlanLowerPair *pair
      = begin (lower, is_backward ? NULL : &pass, is_backward ? &pass : NULL, is_backward);
  plan_lower_pair_layers (pair);
  plan_lower_end_pair (pair);
}

void
plan_lower_take_rows (PlanLower *self)
{
  const gint64 *value = self->plan->value;
  const gboolean is_piped
      = value[PLAN_PP] > 1 && (value[PLAN_TASK] == PLAN_TASK_TRAIN || value[PLAN_VPP] > 1);
  self->combined.is_planned
      = ON (self, EP_OVERLAP)
        && (self->place.micro_batches > 1 || plan_shards_weights (self->plan));
  self->rows
      = is_piped ? plan_stage_rows (self->plan, self->place.stage_number, self->place.micro_batches)
        : self->combined.is_planned ? MIN (N_WAYS, self->place.micro_batches)
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
  if (self->combined.by_share)
    {
      lone_pass (self, 0, FALSE);
      combine_all (self, n - 1);
      lone_pass (self, n - 1, TRUE);
      self->now.row = 0;
      return;
    }
  self->now.row = 0;
  self->now.is_first_micro_batch = TRUE;
  plan_lower_forward (self);
  combine_all (self, n - 1);
  self->now.row = (n - 1) % self->rows;
  self->now.is_first_micro_batch = n == 1;
  plan_lower_backward (self, TRUE);
  self->now.row = 0;
}
