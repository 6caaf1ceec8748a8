/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower/lower-acts.h"

#include "planner/base/units.h"
#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-offload.h"
#include "planner/lower/lower-step.h"

#include <string.h>

/* The state of one piece of a unit's weights. */
typedef enum
{
  ABSENT,
  WANTED,  /* not gathered, but about to be */
  STALE,   /* gathered for nothing, and never waited for */
  FLAGGED, /* to be dropped when something else is gathered */
  PRESENT,
} Residence;

/* The pieces of a unit's weights that its passes read, three at most. */
#define MAX_PIECES 4
typedef struct
{
  gboolean is_known;
  PlanBucketKind rows; /* the kind of bucket that its rows are in */
  guint n;
  PlanPiece pieces[MAX_PIECES]; /* that its forward pass reads */
} Reads;

typedef struct
{
  const PlanLower *lower;
  PlanLowerOrder *order;
  Reads *reads; /* by unit; found where they are asked for */
  PlanLowerQueue *queue;
  Residence *residence;   /* by unit and piece */
  guint n_loose;          /* pieces that are STALE or FLAGGED */
  const gint64 *outgoing; /* by unit: see find_outgoing */
  guint n_acts;           /* acts in use; the array of the order has room for more */
  guint begin;            /* first act of the chunk at hand */
  guint turn;             /* number of chunks that recur together; 1: each by itself */
} Builder;

static guint64
queue_elements (const PlanLowerQueue *self, gint64 unit)
{
  if (self->group_elements)
    return self->group_elements[unit];
  return unit == PLAN_QUEUE_HEAD ? self->head_elements : self->unit_elements[unit];
}

void
plan_lower_queue_push (PlanLowerQueue *self, gint64 unit)
{
  self->unit[self->n++] = unit;
  self->elements += queue_elements (self, unit);
}

gint64
plan_lower_queue_pop (PlanLowerQueue *self)
{
  const gint64 unit = self->unit[self->first++];
  self->elements -= queue_elements (self, unit);
  return unit;
}

gboolean
plan_lower_queue_is_over (const PlanLowerQueue *self, gboolean has_own)
{
  const gboolean is_over = self->elements > (guint64)self->limit;
  const guint flying = self->n - self->first;
  return flying > 0
         && (self->sets == 0 ? is_over
             : has_own       ? is_over || flying > self->sets
                             : flying >= self->sets);
}

static PlanAct *
next_act (Builder *b)
{
  GArray *acts = b->order->acts;
  if (b->n_acts == acts->len)
    g_array_set_size (acts, 2 * acts->len + 16);
  return &g_array_index (acts, PlanAct, b->n_acts++);
}

static void
add (Builder *b, PlanActKind kind, PlanPiece piece, gint64 unit, PlanLowerKeep keep)
{
  *next_act (b) = (PlanAct){ .kind = kind,
                             .piece = piece,
                             .unit = (gint32)unit,
                             .lies_like = b->lower->by_size.like ? b->lower->by_size.like[unit] : 0,
                             .keep = keep };
}

static void
add_plain (Builder *b, PlanActKind kind, PlanPiece piece, gint64 unit)
{
  add (b, kind, piece, unit, (PlanLowerKeep){ 0 });
}

/* The kind of bucket that holds a unit's parameters, but for those in buckets of their own. */
static PlanBucketKind
bucket_of_unit (const PlanLower *lower, gint64 unit)
{
  for (PlanBucketKind kind = PLAN_BUCKET_DENSE; plan_bucket_is_main (kind); kind++)
    if (plan_lower_holds (lower, kind, PLAN_NO_UNIT, (gint32)unit))
      return kind;
  return PLAN_BUCKET_LAYER;
}

static const Reads *
reads_of (const Builder *b, gint64 unit)
{
  const PlanLower *lower = b->lower;
  Reads *reads = &b->reads[unit];
  if (reads->is_known)
    return reads;
  *reads = (Reads){ .is_known = TRUE, .rows = bucket_of_unit (lower, unit) };
  if (lower->bucket[reads->rows].shards_weights)
    reads->pieces[reads->n++] = PLAN_PIECE_ROWS;
  if (plan_layout_has (&lower->layout, plan_bucket_plain (reads->rows))
      && lower->bucket[plan_bucket_plain (reads->rows)].shards_weights)
    reads->pieces[reads->n++] = PLAN_PIECE_PLAIN;
  if (plan_lower_holds (lower, PLAN_BUCKET_EXPERTS, PLAN_NO_UNIT, (gint32)unit)
      && lower->bucket[PLAN_BUCKET_EXPERTS].shards_weights)
    reads->pieces[reads->n++] = PLAN_PIECE_EXPERTS;
  if (plan_lower_holds (lower, PLAN_BUCKET_EXPERTS_PLAIN, PLAN_NO_UNIT, (gint32)unit)
      && lower->bucket[PLAN_BUCKET_EXPERTS_PLAIN].shards_weights)
    reads->pieces[reads->n++] = PLAN_PIECE_EXPERT_PLAIN;
  return reads;
}

/* Adds an act about a piece of a unit or about the whole unit, with its kind of bucket: so layers
 * whose buckets differ have different acts. */
static void
add_piece (Builder *b, PlanActKind kind, PlanPiece piece, gint64 unit)
{
  const Reads *reads = reads_of (b, unit);
  const PlanBucketKind buckets[PLAN_N_PIECES]
      = { [PLAN_PIECE_ROWS] = reads->rows,
          [PLAN_PIECE_COLUMNS] = reads->rows,
          [PLAN_PIECE_PLAIN] = plan_bucket_plain (reads->rows),
          [PLAN_PIECE_EXPERTS] = PLAN_BUCKET_EXPERTS,
          [PLAN_PIECE_EXPERT_COLUMNS] = PLAN_BUCKET_EXPERTS,
          [PLAN_PIECE_EXPERT_PLAIN] = PLAN_BUCKET_EXPERTS_PLAIN };
  add_plain (b, kind, piece, unit);
  g_array_index (b->order->acts, PlanAct, b->n_acts - 1).bucket = buckets[piece];
}

/* By unit: the first unit that offloads the same activations, that is one that keeps the same
 * values; -1: it offloads none. NULL if no unit does. */
static gint64 *
find_outgoing (const PlanLower *lower)
{
  const gint64 limit = lower->plan->value[PLAN_OFFLOAD_LAYERS], layers = lower->stage.layers;
  const gint64 first = lower->now.here.first, end = first + lower->now.here.layers;
  gint64 *like
      = limit > 0 || lower->plan->value[PLAN_OFFLOAD_MODULES] != 0 ? g_new (gint64, layers) : NULL;
  g_autofree PlanLowerKeep *keeps = g_new (PlanLowerKeep, layers);
  g_autofree gint64 *firsts = g_new (gint64, layers);
  guint n_firsts = 0;
  for (gint64 unit = first; like && unit < end; unit++)
    {
      const PlanLowerKeep keep = keeps[unit] = plan_lower_keep (lower, unit);
      guint i = 0;
      like[unit] = -1;
      if (!plan_lower_offloads (lower, unit))
        continue;
      while (i < n_firsts
             && (keeps[firsts[i]].again != keep.again || keeps[firsts[i]].kind != keep.kind
                 || keeps[firsts[i]].drops_input != keep.drops_input
                 || (firsts[i] < limit) != (unit < limit)))
        i++;
      if (i == n_firsts)
        firsts[n_firsts++] = unit;
      like[unit] = firsts[i];
    }
  return like;
}

/* Adds an act about a unit's offloaded activations, if it has any. */
static void
add_offload (Builder *b, PlanActKind kind, gint64 unit)
{
  if (unit < b->lower->now.here.first || !b->outgoing || b->outgoing[unit] < 0)
    return;
  *next_act (b) = (PlanAct){ .kind = kind, .unit = (gint32)unit, .like = b->outgoing[unit] };
}

/* Whether n acts from `one` on equal those from `other` on. Comparing bytes is right: no byte of an
 * act is padding. */
static gboolean
are_alike (const PlanLowerOrder *order, guint one, guint other, guint n)
{
  const PlanAct *acts = (const PlanAct *)(void *)order->acts->data;
  return memcmp (&acts[one], &acts[other], n * sizeof (PlanAct)) == 0;
}

/* Whether n runs from `other` on have the acts of those from `one` on, at equal distances between
 * their units. */
static gboolean
continues (const PlanLowerOrder *order, guint one, guint other, guint n)
{
  const PlanLowerRun *runs = (const PlanLowerRun *)(void *)order->runs->data;
  for (guint k = 0; k < n; k++)
    {
      const PlanLowerRun *run = &runs[one + k], *next = &runs[other + k];
      if (run->n != next->n || next->first - run->first != runs[other].first - runs[one].first
          || !are_alike (order, run->from, next->from, run->n))
        return FALSE;
    }
  return TRUE;
}

/* Adds a chunk to the last run, if it continues that run and chunks recur one by one. FALSE: it was
 * not added. */
static gboolean
extend (const Builder *b, const PlanLowerRun *chunk)
{
  GArray *runs = b->order->runs;
  if (b->turn > 1 || runs->len == 0)
    return FALSE;
  PlanLowerRun *last = &g_array_index (runs, PlanLowerRun, runs->len - 1);
  const gint64 step = chunk->first - last->first - (last->count - 1) * last->step;
  if (last->n != chunk->n || (last->count > 1 && step != last->step)
      || !are_alike (b->order, last->from, chunk->from, chunk->n))
    return FALSE;
  last->count++;
  last->step = step;
  return TRUE;
}

/* Ends the chunk at unit `first`, which consists of the acts added since the last call. */
static void
close_chunk (Builder *b, gint64 first)
{
  PlanLowerOrder *order = b->order;
  const PlanLowerRun chunk
      = { .first = first, .count = 1, .from = b->begin, .n = b->n_acts - b->begin };
  for (guint i = chunk.from; i < b->n_acts; i++)
    g_array_index (order->acts, PlanAct, i).unit -= (gint32)first;
  if (extend (b, &chunk))
    b->n_acts = chunk.from;
  else
    g_array_append_val (order->runs, chunk);
  b->begin = b->n_acts;
}

/* Whether the parameters of neighbouring layers have the same places in their buckets: one layer
 * after another in one bucket, or layers of a virtual stage in buckets of their own. */
static gboolean
lie_alike (const PlanLower *lower)
{
  const gint64 *like = &lower->by_size.like[lower->now.here.first + lower->now.here.layers / 2];
  return lower->now.here.layers > 1 && like[0] == like[-1]
         && (like[0] < 0 || lower->stage.n_virtual > 1);
}

/* The number of chunks after which acts can recur: as many as lead to a layer of the same kind
 * whose parameters have the same places in their buckets. */
static guint
chunks_per_turn (const PlanLower *lower)
{
  gint64 layers = plan_model_kinds_period (lower->model, lower->plan->value[PLAN_SEQ]);
  if (lower->layout.by_size && !lie_alike (lower))
    {
      const PlanBucketCycle cycle = plan_buckets_cycle (&lower->buckets);
      if (cycle.count < 2)
        return 1;
      layers *= ABS (cycle.step) / plan_units_gcd (ABS (cycle.step), layers);
    }
  return (guint)(layers / plan_units_gcd (layers, lower->policy.chunk));
}

/* Joins runs that recur several at a time into one run each. */
static void
fold (Builder *b)
{
  PlanLowerOrder *order = b->order;
  const guint n = b->turn;
  if (n == 1)
    return;
  GArray *folded = g_array_new (FALSE, FALSE, sizeof (PlanLowerRun));
  for (guint i = 0; i < order->runs->len;)
    {
      PlanLowerRun run = g_array_index (order->runs, PlanLowerRun, i);
      const PlanLowerRun *runs = (const PlanLowerRun *)(void *)order->runs->data;
      const guint left = order->runs->len - i;
      guint turns = 1;
      while ((turns + 1) * n <= left && continues (order, i, i + turns * n, n)
             && runs[i + turns * n].first - runs[i + (turns - 1) * n].first
                    == runs[i + n].first - run.first)
        turns++;
      for (guint k = 1; turns > 1 && k < n; k++)
        {
          for (guint a = 0; a < runs[i + k].n; a++)
            g_array_index (order->acts, PlanAct, runs[i + k].from + a).unit
                += (gint32)(runs[i + k].first - run.first);
          run.n += runs[i + k].n;
        }
      run.count = turns;
      run.step = turns > 1 ? runs[i + n].first - run.first : 0;
      g_array_append_val (folded, run);
      i += turns > 1 ? turns * n : 1;
    }
  g_array_unref (order->runs);
  order->runs = folded;
}

static Residence
residence (const Builder *b, gint64 unit, PlanPiece piece)
{
  return b->residence[unit * PLAN_N_PIECES + piece];
}

static gboolean
is_loose (Residence state)
{
  return state == STALE || state == FLAGGED;
}

static void
set_residence (Builder *b, gint64 unit, PlanPiece piece, Residence state)
{
  b->n_loose -= (guint)is_loose (residence (b, unit, piece));
  b->n_loose += (guint)is_loose (state);
  b->residence[unit * PLAN_N_PIECES + piece] = state;
}

/* The copy along columns of a piece of quantised weights; any other piece itself. */
static PlanPiece
columns_of (PlanPiece piece)
{
  return piece == PLAN_PIECE_ROWS      ? PLAN_PIECE_COLUMNS
         : piece == PLAN_PIECE_EXPERTS ? PLAN_PIECE_EXPERT_COLUMNS
                                       : piece;
}

/* Finds the pieces of a unit's weights that a pass reads, and returns their number. */
static guint
pieces_read (const Builder *b, gint64 unit, gboolean is_backward, PlanPiece *out_pieces)
{
  const Reads *reads = reads_of (b, unit);
  const gboolean columns = is_backward && b->lower->policy.gathers_columns;
  for (guint i = 0; i < reads->n; i++)
    out_pieces[i] = columns ? columns_of (reads->pieces[i]) : reads->pieces[i];
  return reads->n;
}

/* Sets the state of all pieces that a unit's forward pass reads. */
static void
set_all (Builder *b, gint64 unit, Residence state)
{
  PlanPiece pieces[MAX_PIECES];
  for (guint i = 0, n = pieces_read (b, unit, FALSE, pieces); i < n; i++)
    set_residence (b, unit, pieces[i], state);
}

static void
drop (Builder *b, gint64 unit, PlanPiece piece)
{
  if (residence (b, unit, piece) == STALE)
    add_piece (b, PLAN_ACT_AWAIT, piece, unit);
  add_piece (b, PLAN_ACT_DROP, piece, unit);
  set_residence (b, unit, piece, ABSENT);
}

/* Drops the STALE and FLAGGED pieces, as something is about to be gathered. */
static void
recycle (Builder *b)
{
  for (gint64 u = 0; u < b->lower->stage.layers && b->n_loose > 0; u++)
    for (PlanPiece piece = 0; piece < PLAN_N_PIECES; piece++)
      if (is_loose (residence (b, u, piece)))
        drop (b, u, piece);
}

static void
gather (Builder *b, gint64 unit, PlanPiece piece)
{
  add_piece (b, PLAN_ACT_GATHER, piece, unit);
  set_residence (b, unit, piece, PRESENT);
  const PlanBucketKind rows = reads_of (b, unit)->rows;
  const gint64 length = plan_lower_pool_length (b->lower);
  for (gint64 u = unit % length; b->lower->bucket[rows].is_pooled && u < b->lower->stage.layers;
       u += length)
    if (u != unit && reads_of (b, u)->rows == rows)
      set_residence (b, u, piece, ABSENT);
}

/* A hook's request: gathers the pieces of unit `from`, and those of the units down to `to` ahead of
 * their use, unless they are there. Of what is there, only unit `from` is protected from being
 * dropped for this gather; a unit ahead may be dropped now, and gathered again when it is
 * requested. */
static void
request (Builder *b, gint64 from, gint64 to, gboolean is_backward)
{
  PlanPiece pieces[MAX_PIECES];
  gboolean gathers = FALSE;
  if (!b->lower->policy.shards_weights || b->lower->combined.by_share)
    return;
  for (gint64 u = from; u >= to; u--)
    for (guint i = 0, n = pieces_read (b, u, is_backward, pieces); i < n; i++)
      {
        const Residence state = residence (b, u, pieces[i]);
        gathers |= state == ABSENT;
        set_residence (b, u, pieces[i], state == ABSENT ? WANTED : u == from ? PRESENT : state);
      }
  if (!gathers)
    return;
  recycle (b);
  for (gint64 u = from; u >= to; u--)
    for (guint i = 0, n = pieces_read (b, u, is_backward, pieces); i < n; i++)
      if (residence (b, u, pieces[i]) == WANTED)
        gather (b, u, pieces[i]);
}

static void
await (Builder *b, gint64 unit, gboolean is_backward)
{
  PlanPiece pieces[MAX_PIECES];
  if (!b->lower->policy.drops_weights || b->lower->combined.by_share)
    return;
  const guint n = pieces_read (b, unit, is_backward, pieces);
  for (guint i = 0; i < n; i++)
    add_piece (b, PLAN_ACT_AWAIT, pieces[i], unit);
}

static void
release_due (Builder *b, gint64 unit)
{
  const gboolean has_own
      = b->lower->policy.pools && !b->lower->bucket[reads_of (b, unit)->rows].is_pooled;
  while (b->queue && plan_lower_queue_is_over (b->queue, has_own))
    {
      const gint64 popped = plan_lower_queue_pop (b->queue);
      if (popped == PLAN_QUEUE_HEAD)
        add_plain (b, PLAN_ACT_RELEASE_HEAD, 0, 0);
      else
        add_piece (b, PLAN_ACT_RELEASE, PLAN_PIECE_ROWS, popped);
    }
}

/* Makes an act of that kind on a bucket cut by size. `role`: inside a backward pass, the parameter
 * whose gradient it waits for. */
static PlanAct
bucket_act (const PlanLower *lower, PlanActKind kind, guint32 number, gint64 unit,
            PlanTensorRole role)
{
  const PlanBucketSpan *span = &lower->buckets.spans[number];
  const gboolean is_unit = plan_bucket_is_unit (span->kind);
  const gboolean is_shared = is_unit && lower->by_size.like[unit] == PLAN_LIES_WITHIN (number);
  return (PlanAct){ .kind = kind,
                    .unit = (gint32)(is_unit && !is_shared ? span->unit : unit),
                    .role = role,
                    .bucket = span->kind,
                    .shared = is_shared ? span->unit + 1 : 0 };
}

static void
add_bucket (const PlanLower *lower, GArray *acts, PlanActKind kind, guint32 number, gint64 unit,
            PlanTensorRole role)
{
  const PlanAct act = bucket_act (lower, kind, number, unit, role);
  g_array_append_val (acts, act);
}

void
plan_lower_add_reductions (const PlanLower *lower, PlanLowerQueue *queue, gint64 when, GArray *acts)
{
  const gint64 unit = when == PLAN_BEFORE_LAYERS || when == PLAN_AFTER_LAYERS ? 0 : when;
  g_autoptr (GArray) groups = plan_lower_groups_of (lower, when);
  for (guint i = 0; i < groups->len; i++)
    {
      const PlanLowerGroup *group = &g_array_index (groups, PlanLowerGroup, i);
      while (queue && plan_lower_queue_is_over (queue, FALSE))
        add_bucket (lower, acts, PLAN_ACT_RELEASE_BUCKET, (guint32)plan_lower_queue_pop (queue),
                    unit, group->role);
      add_bucket (lower, acts, PLAN_ACT_REDUCE_BUCKET, group->number, unit, group->role);
      if (queue)
        plan_lower_queue_push (queue, group->number);
    }
}

/* Adds the reductions of the buckets that this unit's gradients complete, inside its backward
 * pass. */
static void
attach_reductions (Builder *b, gint64 unit)
{
  GArray *acts = b->order->acts;
  const guint backward = b->n_acts - 1;
  g_array_set_size (acts, b->n_acts);
  plan_lower_add_reductions (b->lower, b->queue, unit, acts);
  g_array_index (acts, PlanAct, backward).attached = acts->len - b->n_acts;
  b->n_acts = acts->len;
}

/* Waits for each bucket that holds weights of a unit. `in_turn`: where the pass comes to the first
 * parameter of a bucket, the next bucket is gathered. */
static void
await_buckets (Builder *b, gint64 unit, gboolean in_turn)
{
  const PlanBuckets *buckets = &b->lower->buckets;
  const guint first = buckets->n_before + (guint)unit * buckets->n_layer;
  for (guint at = first; at < first + buckets->n_layer; at++)
    {
      const guint32 number = buckets->number[at];
      if (at > first && buckets->number[at - 1] == number)
        continue;
      *next_act (b) = bucket_act (b->lower, PLAN_ACT_AWAIT_BUCKET, number, unit, 0);
      const guint32 next = plan_lower_next_bucket (b->lower, number);
      if (in_turn && at == buckets->spans[number].first && next != PLAN_NO_BUCKET)
        *next_act (b) = bucket_act (b->lower, PLAN_ACT_GATHER_BUCKET, next, unit, 0);
    }
}

/* Recomputes a unit's forward pass. Its hook gathers nothing ahead, as it knows that the backward
 * pass is next. */
static void
replay (Builder *b, gint64 unit)
{
  PlanPiece pieces[MAX_PIECES];
  const guint n = pieces_read (b, unit, FALSE, pieces);
  request (b, unit, unit, FALSE);
  await (b, unit, FALSE);
  add (b, PLAN_ACT_REPLAY, 0, unit, plan_lower_keep_all (b->lower, unit));
  for (guint i = 0; b->lower->policy.shards_weights && i < n; i++)
    set_residence (b, unit, pieces[i], FLAGGED);
}

/* Whether recompute of a layer reads a piece. Modules have hooks of their own that gather weights
 * (Megatron-FSDP's fine_grained), so experts are read only where one of their products runs again.
 */
static gboolean
reads_again (const Builder *b, PlanPiece piece, PlanLowerKeep keep)
{
  const PlanLayerGraph *net = b->lower->graphs->of[keep.kind];
  gboolean reads = piece != PLAN_PIECE_EXPERTS;
  for (guint i = 0; i < net->n_nodes && !reads; i++)
    reads = (keep.again & plan_node_bit (i)) != 0 && net->nodes[i].kind == PLAN_NODE_EXPERT_LINEAR;
  return reads;
}

/* Gathers and awaits the rows that recompute reads, where the backward pass itself reads copies
 * along columns. No op runs beside these gathers. */
static void
request_rows (Builder *b, gint64 unit, PlanLowerKeep keep)
{
  PlanPiece pieces[MAX_PIECES];
  gboolean gathers = FALSE;
  const guint n = b->lower->policy.shards_weights ? pieces_read (b, unit, FALSE, pieces) : 0;
  for (guint i = 0; i < n; i++)
    if (reads_again (b, pieces[i], keep))
      {
        const gboolean is_absent = residence (b, unit, pieces[i]) == ABSENT;
        set_residence (b, unit, pieces[i], is_absent ? WANTED : PRESENT);
        gathers |= is_absent;
      }
  if (gathers)
    recycle (b);
  for (guint i = 0; i < n; i++)
    if (residence (b, unit, pieces[i]) == WANTED)
      gather (b, unit, pieces[i]);
  for (guint i = 0; i < n; i++)
    if (columns_of (pieces[i]) != pieces[i] && reads_again (b, pieces[i], keep))
      add_piece (b, PLAN_ACT_AWAIT, pieces[i], unit);
}

/* One unit's backward pass, with its gathers and reductions; `keep` lists nodes to recompute. */
static void
turn (Builder *b, gint64 unit, PlanLowerKeep keep, gboolean reduces)
{
  const PlanLower *lower = b->lower;
  /* A buffer of a pool must be free before it is filled; without a pool, buckets are freed when the
   * next reduction is about to start. */
  const gboolean early = lower->policy.pools && lower->policy.shards_grads;
  if (keep.again != 0)
    request (b, unit, unit, TRUE);
  request (b, unit, MAX (unit - lower->policy.ahead, lower->now.here.first), TRUE);
  if (unit == 0 && lower->policy.has_own_groups && !lower->policy.keeps_weights)
    add_plain (b, PLAN_ACT_GATHER_EMBEDDING, 0, unit);
  await (b, unit, TRUE);
  if (lower->policy.gathers_columns && keep.again != 0)
    request_rows (b, unit, keep);
  if (early)
    release_due (b, unit);
  add (b, PLAN_ACT_BACKWARD, 0, unit, keep);
  if (lower->layout.by_size)
    {
      if (reduces)
        attach_reductions (b, unit);
      return;
    }
  for (PlanPiece piece = 0; piece < PLAN_N_PIECES; piece++)
    if (residence (b, unit, piece) != ABSENT && !lower->policy.keeps_weights)
      drop (b, unit, piece);
  if (!early)
    release_due (b, unit);
  if (reduces)
    add_piece (b, PLAN_ACT_REDUCE, PLAN_PIECE_ROWS, unit);
  if (b->queue)
    plan_lower_queue_push (b->queue, unit);
  if (!keep.is_module || !plan_layout_has (&lower->layout, PLAN_BUCKET_HEAD))
    return;
  if (reduces)
    add_plain (b, PLAN_ACT_REDUCE_HEAD, 0, unit);
  if (b->queue)
    plan_lower_queue_push (b->queue, PLAN_QUEUE_HEAD);
}

static void
init (PlanLowerOrder *self)
{
  self->acts = g_array_new (FALSE, FALSE, sizeof (PlanAct));
  self->runs = g_array_new (FALSE, FALSE, sizeof (PlanLowerRun));
}

/* A unit's hook gathers its own weights and those of the next `ahead` units, unless they are
 * there. So several units are gathered before the pass begins, and one more at each unit, as long
 * as there are any. */
void
plan_lower_order_init_forward (PlanLowerOrder *self, const PlanLower *lower)
{
  const gboolean in_turn = plan_lower_gathers_in_turn (lower);
  const gboolean by_unit = in_turn && !lower->layout.by_size;
  const gint64 begin = lower->now.here.first, layers = begin + lower->now.here.layers;
  const gboolean gathers = plan_lower_gathers_weights (lower);
  const gint64 ahead = lower->policy.shards_weights ? lower->policy.ahead : 0;
  g_autofree gint64 *outgoing = find_outgoing (lower);
  g_autofree Reads *reads = g_new0 (Reads, lower->stage.layers);
  Builder b = { .lower = lower,
                .order = self,
                .reads = reads,
                .outgoing = outgoing,
                .turn = chunks_per_turn (lower) };
  PlanPiece pieces[MAX_PIECES];
  init (self);
  for (gint64 u = begin; u < layers; u++)
    {
      guint n = gathers && u + ahead < layers ? pieces_read (&b, u + ahead, FALSE, pieces) : 0;
      for (guint i = 0; i < n; i++)
        add_piece (&b, PLAN_ACT_GATHER, pieces[i], u + ahead);
      if (lower->layout.by_size && lower->policy.shards_optimizer)
        await_buckets (&b, u, in_turn);
      if (u + MAX (ahead, 1) == layers - lower->now.here.modules
          && (by_unit || (gathers && lower->policy.has_own_groups)))
        add_plain (&b, PLAN_ACT_GATHER_HEAD, 0, u);
      if (by_unit && u + 1 < layers)
        add_piece (&b, PLAN_ACT_GATHER_UNIT, PLAN_PIECE_ROWS, u + 1);
      add (&b, PLAN_ACT_FORWARD, 0, u, plan_lower_keep (lower, u));
      add_offload (&b, PLAN_ACT_OFFLOAD, u);
      add_offload (&b, PLAN_ACT_DROP_OFFLOADED, u - 1);
      n = lower->policy.shards_weights ? pieces_read (&b, u, FALSE, pieces) : 0;
      for (guint i = 0; i < n && (lower->policy.drops_weights || lower->policy.is_eval); i++)
        add_piece (&b, PLAN_ACT_DROP, pieces[i], u);
      if (u + 1 == layers)
        add_offload (&b, PLAN_ACT_DROP_OFFLOADED, u);
      if ((u + 1 - begin) % lower->policy.chunk == 0 || u + 1 == layers)
        close_chunk (&b, u - (u - begin) % lower->policy.chunk);
    }
  fold (&b);
}

void
plan_lower_order_init_backward (PlanLowerOrder *self, const PlanLower *lower, PlanLowerQueue *queue,
                                gboolean reduces)
{
  const gint64 begin = lower->now.here.first, layers = begin + lower->now.here.layers;
  g_autofree Residence *states = g_new0 (Residence, lower->stage.layers * PLAN_N_PIECES);
  g_autofree gint64 *outgoing = find_outgoing (lower);
  g_autofree Reads *reads = g_new0 (Reads, lower->stage.layers);
  Builder b = { .lower = lower,
                .order = self,
                .reads = reads,
                .queue = queue,
                .residence = states,
                .outgoing = outgoing,
                .turn = chunks_per_turn (lower) };
  init (self);
  for (gint64 u = 0; u < lower->policy.ahead_of_head; u++)
    set_all (&b, u, STALE);
  for (gint64 u = 0; u < layers && lower->policy.shards_weights && !lower->policy.drops_weights;
       u++)
    set_all (&b, u, PRESENT);
  if (lower->policy.gathers_last_early)
    set_all (&b, layers - 1, PRESENT);
  for (gint64 end = layers, first; end > begin; end = first)
    {
      first = (end - 1) - (end - 1 - begin) % lower->policy.chunk;
      for (gint64 u = first - 1; u >= first - lower->policy.chunk; u--)
        add_offload (&b, PLAN_ACT_FETCH, u);
      for (gint64 u = end - 1; u >= first; u--)
        add_offload (&b, PLAN_ACT_AWAIT_FETCHED, u);
      for (gint64 u = first; u < end - 1; u++)
        replay (&b, u);
      for (gint64 u = end - 1; u >= first; u--)
        turn (&b, u, u == end - 1 ? plan_lower_keep (lower, u) : plan_lower_keep_all (lower, u),
              reduces);
      close_chunk (&b, first);
    }
  fold (&b);
}

void
plan_lower_order_clear (PlanLowerOrder *self)
{
  g_clear_pointer (&self->acts, g_array_unref);
  g_clear_pointer (&self->runs, g_array_unref);
}
