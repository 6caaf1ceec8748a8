/* SPDX-License-Identifier: Apache-2.0 */
/* Context parallelism: which tokens each rank of a group has; ring attention, in which each rank
 * attends to its own keys, then to those of the rank before it, and so on. */
#include "config.h"

#include "tests/reference/evaluate-context.h"

#include "tests/reference/evaluate-dropout.h"
#include "tests/reference/evaluate-experts.h"

#include <string.h>

/* A rank as a member of its context-parallel group, in a layer. */
typedef struct
{
  ExecEvaluator *self;
  ExecEvaluator **ring; /* the group: every tp-th element */
  guint at;             /* the rank's place in the group */
  gint64 layer;
} Member;

static Member
member_of (ExecEvaluator *all, guint p, gint64 layer)
{
  const guint each = all->tp * all->cp;

  return (Member){ all->peer[p], all->peer + p / each * each + p % all->tp, p % each / all->tp,
                   layer };
}

/* The rank whose keys a member reads in a turn of the ring. */
static guint
source_of (const Member *member, guint turn)
{
  const guint cp = member->self->cp;

  return (member->at + cp - turn) % cp;
}

/* Makes an array of `cols` columns of zeros for each row. The caller frees its data. */
static ExecArray
take (const ExecEvaluator *self, PlanDtype dtype, gint64 cols)
{
  return (ExecArray){ g_malloc0 (plan_dtype_bytes (dtype, (guint64)(self->rows * cols))), dtype,
                      NULL };
}

static gint64
key_width (const ExecEvaluator *self)
{
  return 2 * self->model->kv_heads * self->model->head_dim;
}

/* Copies the columns of keys and values of a rank's heads. The caller frees the copy's data. */
static ExecArray
keys_of (const ExecEvaluator *self, gint64 layer)
{
  const ExecArray heads = self->layers[layer].heads,
                  out = take (self, heads.dtype, key_width (self));

  for (gint64 row = 0; row < self->rows; row++)
    memcpy (
        exec_evaluator_from (out, (guint64)(row * key_width (self))).data,
        exec_evaluator_from (heads, (guint64)(row * self->qkv_width + self->attention_width)).data,
        plan_dtype_bytes (heads.dtype, (guint64)key_width (self)));
  return out;
}

/* Adds `in`, rows of `cols` elements, to the first columns of `out`, rows of `width`. */
static void
add_columns (const ExecEvaluator *self, ExecArray out, gint64 width, ExecArray in, gint64 cols)
{
  for (gint64 i = 0; i < self->rows * cols; i++)
    {
      const gint64 to = i / cols * width + i % cols;

      exec_evaluator_put (out, to, exec_evaluator_get (out, to) + exec_evaluator_get (in, i));
    }
}

/* The number of tokens that attention treats as one sequence: a chunk, where the rank has whole
 * sequences and chunks divide them; else what the rank has of a sequence. */
static gint64
attended_seq (const Member *member)
{
  const ExecEvaluator *self = member->self;
  const PlanManner manner = exec_evaluator_attention_manner (self, member->layer);
  const gint64 chunk = (gint64)manner.value[PLAN_MANNER_CHUNK];

  return self->cp == 1 && chunk > 0 && self->seq % chunk == 0 ? chunk : self->seq;
}

/* The number in the run of the first token of the first sequence. Under context parallelism the
 * rank's own first token begins piece `at` of that sequence. */
static gint64
start_of (const Member *member)
{
  const ExecEvaluator *self = member->self;

  return self->numbers[0] - (self->cp > 1 ? member->at * self->seq / 2 : 0);
}

/* Runs an op of attention to the keys of a turn of the ring. */
static void
run (const Member *member, guint turn, PlanOpKind kind, const ExecArray *operands)
{
  ExecEvaluator *self = member->self;
  const PlanModel *m = self->model;
  PlanManner manner = exec_evaluator_attention_manner (self, member->layer);
  const gint64 seq = attended_seq (member);
  const gboolean is_back = kind == PLAN_OP_ATTENTION_BWD;
  gint64 start = start_of (member);
  guint32 key[2];
  ExecArray all[PLAN_MAX_REFS];

  memcpy (all, operands, sizeof all);
  exec_evaluator_key (self, member->layer, key);
  if (manner.value[PLAN_MANNER_RATE] > 0)
    {
      all[is_back ? PLAN_REF_ATTENTION_BWD_key : PLAN_REF_ATTENTION_key].data = key;
      all[is_back ? PLAN_REF_ATTENTION_BWD_start : PLAN_REF_ATTENTION_start].data = &start;
    }
  if (seq < self->seq)
    manner.value[PLAN_MANNER_CHUNK] = 0;
  manner.value[PLAN_MANNER_PART] = self->cp > 1 ? member->at : 0;
  manner.value[PLAN_MANNER_PARTS] = self->cp > 1 ? self->cp : 0;
  self->turn = turn;
  exec_evaluator_run_as (
      self, kind, all, (gint64[]){ self->rows / seq, seq, m->heads, m->kv_heads, m->head_dim, seq },
      &manner);
  self->turn = 0;
}

/* Positions of tokens in their documents, since attention does not reach beyond these. No array
 * under context parallelism, which has no documents. */
static ExecArray
places_of (const ExecEvaluator *self)
{
  return (ExecArray){ self->cp > 1 ? NULL : self->places, PLAN_DTYPE_I32, NULL };
}

static ExecArray
sinks_of (const Member *member)
{
  return exec_evaluator_weight (member->self, PLAN_TENSOR_SINKS, member->layer);
}

/* Attention to the keys of every turn, each result joined to those before; then the sinks. */
static void
attend (const Member *member)
{
  ExecEvaluator *self = member->self;
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[member->layer];
  const gint64 seq = attended_seq (member);

  run (member, 0, PLAN_OP_ATTENTION,
       EXEC_OPERANDS (l->attention, l->lse, l->heads, { 0 }, { 0 }, places_of (self)));
  for (guint turn = 1; turn < self->cp; turn++)
    {
      ExecArray keys = keys_of (member->ring[source_of (member, turn) * self->tp], member->layer);
      ExecArray part = take (self, l->attention.dtype, self->attention_width);
      ExecArray lse = take (self, PLAN_DTYPE_FP32, m->heads);

      run (member, turn, PLAN_OP_ATTENTION, EXEC_OPERANDS (part, lse, l->heads, { 0 }, keys));
      exec_evaluator_run (self, PLAN_OP_ATTENTION_JOIN,
                          EXEC_OPERANDS (l->attention, l->lse, part, lse),
                          (gint64[]){ self->mbs, self->seq, m->heads, m->head_dim });
      g_free (keys.data);
      g_free (part.data);
      g_free (lse.data);
    }
  if (m->sinks)
    exec_evaluator_run (self, PLAN_OP_ATTENTION_SINK,
                        EXEC_OPERANDS (l->attention, l->lse, sinks_of (member)),
                        (gint64[]){ self->rows / seq, seq, m->heads, m->head_dim });
}

void
exec_evaluator_attention (ExecEvaluator *self, gint64 layer)
{
  for (guint p = 0; p < self->together * self->tp; p++)
    {
      const Member member = member_of (self, p, layer);

      attend (&member);
    }
}

/* Backward through attention to the rank's own keys: the gradients of its heads; and of sinks. */
static void
attend_bwd (const Member *member)
{
  ExecEvaluator *self = member->self;
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[member->layer];
  const gint64 seq = attended_seq (member);

  run (member, 0, PLAN_OP_ATTENTION_BWD,
       EXEC_OPERANDS (self->dheads, self->dattention, l->attention, l->lse, l->heads, { 0 }, { 0 },
                      { 0 }, places_of (self)));
  if (m->sinks)
    exec_evaluator_run (
        self, PLAN_OP_ATTENTION_SINK_BWD,
        EXEC_OPERANDS (exec_evaluator_gradient (self, PLAN_TENSOR_SINKS, member->layer),
                       self->dattention, l->attention, l->lse, sinks_of (member)),
        (gint64[]){ self->rows / seq, seq, m->heads, m->head_dim });
}

/* Backward through attention to the keys of a later turn: adds to the gradients of the rank's own
 * queries and returns those of the keys and values, whose data the caller frees. */
static ExecArray
attend_there_bwd (const Member *member, guint turn)
{
  ExecEvaluator *self = member->self;
  const ExecEvaluatorLayer *l = &self->layers[member->layer];
  ExecArray keys = keys_of (member->ring[source_of (member, turn) * self->tp], member->layer);
  ExecArray dqueries = take (self, self->compute, self->attention_width);
  ExecArray dkeys = take (self, self->compute, key_width (self));

  run (member, turn, PLAN_OP_ATTENTION_BWD,
       EXEC_OPERANDS (dqueries, self->dattention, l->attention, l->lse, l->heads, { 0 }, keys,
                      dkeys));
  add_columns (self, self->dheads, self->qkv_width, dqueries, self->attention_width);
  g_free (keys.data);
  g_free (dqueries.data);
  return dkeys;
}

/* Adds to the gradients of a rank's keys and values what the other ranks computed of them, summed
 * in the ring's order from the rank behind it. */
static void
add_keys (const Member *member, ExecArray *const *dkeys)
{
  const ExecEvaluator *self = member->self;
  const gint64 width = key_width (self);
  ExecArray sum = dkeys[(member->at + 1) % self->cp][1];

  for (guint turn = 2; turn < self->cp; turn++)
    add_columns (self, sum, width, dkeys[(member->at + turn) % self->cp][turn], width);
  add_columns (self, exec_evaluator_from (self->dheads, (guint64)self->attention_width),
               self->qkv_width, sum, width);
}

/* Goes backward through the later turns of the ring, of the group that begins with peer `first`. */
static void
go_around_bwd (ExecEvaluator *all, guint first, gint64 layer)
{
  const guint cp = all->cp, tp = all->tp;
  g_autofree ExecArray **dkeys = g_new0 (ExecArray *, cp); /* by rank and turn */

  for (guint i = 0; i < cp; i++)
    {
      const Member member = member_of (all, first + i * tp, layer);

      dkeys[i] = g_new0 (ExecArray, cp);
      for (guint turn = 1; turn < cp; turn++)
        dkeys[i][turn] = attend_there_bwd (&member, turn);
    }
  for (guint i = 0; i < cp && cp > 1; i++)
    {
      const Member member = member_of (all, first + i * tp, layer);

      add_keys (&member, dkeys);
    }
  for (guint i = 0; i < cp; i++)
    {
      for (guint turn = 1; turn < cp; turn++)
        g_free (dkeys[i][turn].data);
      g_free (dkeys[i]);
    }
}

void
exec_evaluator_attention_bwd (ExecEvaluator *self, gint64 layer)
{
  const guint each = self->tp * self->cp;

  for (guint p = 0; p < self->together * self->tp; p++)
    {
      const Member member = member_of (self, p, layer);

      attend_bwd (&member);
    }
  for (guint p = 0; p < self->together * self->tp; p += each)
    for (guint part = 0; part < self->tp; part++)
      go_around_bwd (self, p + part, layer);
}

/* --- tokens ------------------------------------------------------------------------------- */

/* Whether a rank has a token: of the 2 cp pieces of a sequence each rank has two, one as far from
 * the beginning as the other is from the end. */
static gboolean
has_token (const ExecEvaluator *self, gint64 token)
{
  if (self->cp == 1)
    return TRUE;
  const gint64 piece = token / (self->seq / 2), from_end = 2 * self->cp - 1 - piece;

  return MIN (piece, from_end) == self->rank % self->cp;
}

/* Loads a rank's tokens of sequence `of_batch` of a batch, from row `row` on. */
static gboolean
load_sequence (ExecEvaluator *self, gint64 batch, gint64 of_batch, gint64 row, GError **error)
{
  const gboolean has_documents = self->job->of->plan.value[PLAN_DOC_TOKENS] > 0;
  const ExecJob *job = self->job;
  const gint64 first
      = job->first_token + ((batch - job->first_step) * self->gbs + of_batch) * self->whole_seq;
  g_autofree gint32 *tokens = g_new (gint32, self->whole_seq);
  g_autofree gint32 *targets = g_new (gint32, self->whole_seq);
  g_autofree gint32 *places = has_documents ? g_new (gint32, self->whole_seq) : NULL;

  if (!exec_evaluator_sequence (self->job, self->is_eval, batch, of_batch, tokens, targets, places,
                                error))
    return FALSE;
  for (gint64 t = 0; t < self->whole_seq; t++)
    {
      if (!has_token (self, t))
        continue;
      self->numbers[row] = first + t;
      self->tokens[row] = tokens[t];
      self->targets[row] = targets[t];
      if (self->places)
        self->places[row] = places ? places[t] : (gint32)t;
      row++;
    }
  return TRUE;
}

static gboolean
load_one (ExecEvaluator *self, guint rank, gboolean is_eval, gint64 batch, gint64 micro_batch,
          GError **error)
{
  const gint64 first = (micro_batch * self->ranks + rank) / self->cp * self->mbs;

  self->rank = rank;
  self->is_eval = is_eval;
  for (gint64 i = 0; i < self->mbs; i++)
    if (!load_sequence (self, batch, first + i, i * self->seq, error))
      return FALSE;
  return TRUE;
}

gboolean
exec_evaluator_load (ExecEvaluator *self, guint rank, gboolean is_eval, gint64 batch,
                     gint64 micro_batch, GError **error)
{
  for (guint p = 0; p < self->together * self->tp; p++)
    if (!load_one (self->peer[p], rank + p / self->tp, is_eval, batch, micro_batch, error))
      return FALSE;
  return TRUE;
}

gint64
exec_evaluator_count (const ExecEvaluator *self)
{
  gint64 n = 0;

  for (guint p = 0; p < self->together * self->tp; p += self->tp)
    for (gint64 i = 0; i < self->rows; i++)
      n += self->peer[p]->targets[i] >= 0 ? 1 : 0;
  return n;
}
