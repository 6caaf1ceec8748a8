/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention: queries, keys and values are made from latent vectors of each token. Each rank
 * of a tensor-parallel group makes the latent vectors of its own rows; all ranks then have all of
 * them, and each makes the queries, keys and values of its own heads. */
#include "config.h"

#include "tests/reference/evaluate-dropout.h"
#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"
#include "tests/reference/rope.h"

#include <math.h>

#define RUN_AS(manner, kind, operands, ...) \
  exec_evaluator_run_as (self, PLAN_OP_##kind, operands, (gint64[]){ __VA_ARGS__ }, manner)

typedef struct _ExecEvaluatorLatent
{
  ExecArray q_down, q_normed, q_stats, q; /* the first three: where queries have a latent vector */
  ExecArray kv_down, latent, normed, stats, kv, k, v; /* `latent`: the first columns of kv_down */
  ExecArray dq, dq_normed, dq_down, dk, dv, dkv, dnormed, dlatent, dkv_down, dx;
} ExecEvaluatorLatent;

static gint64
q_width (const PlanModel *m)
{
  return m->heads * (m->nope_dim + m->rope_dim);
}

static gint64
kv_width (const PlanModel *m)
{
  return m->heads * (m->nope_dim + m->v_dim);
}

void
exec_evaluator_take_latent (ExecEvaluator *self, ExecEvaluatorLayer *l)
{
  const PlanModel *m = self->model;
  ExecEvaluatorLatent *a = g_new0 (ExecEvaluatorLatent, 1);
  const struct
  {
    ExecArray *array;
    gint64 cols;
  } table[] = { { &a->q_down, m->q_lora },      { &a->q_normed, m->q_lora },
                { &a->q, q_width (m) },         { &a->kv_down, m->kv_lora + m->rope_dim },
                { &a->latent, m->kv_lora },     { &a->normed, m->kv_lora },
                { &a->kv, kv_width (m) },       { &a->k, q_width (m) },
                { &a->v, m->heads * m->v_dim }, { &a->dq, q_width (m) },
                { &a->dq_normed, m->q_lora },   { &a->dq_down, m->q_lora },
                { &a->dk, q_width (m) },        { &a->dv, m->heads * m->v_dim },
                { &a->dkv, kv_width (m) },      { &a->dnormed, m->kv_lora },
                { &a->dlatent, m->kv_lora },    { &a->dkv_down, m->kv_lora + m->rope_dim },
                { &a->dx, m->hidden } };

  g_ptr_array_add (self->owned, a);
  for (guint i = 0; i < G_N_ELEMENTS (table); i++)
    *table[i].array
        = exec_evaluator_array (self, self->compute, (guint64)(self->rows * table[i].cols));
  a->q_stats = exec_evaluator_array (self, PLAN_DTYPE_FP32, (guint64)self->rows);
  a->stats = exec_evaluator_array (self, PLAN_DTYPE_FP32, (guint64)self->rows);
  l->latent = a;
}

/* The down-projection of this rank's own rows: out = in * weight^T. Down-projections are not split
 * over a tensor-parallel group. */
static void
down (ExecEvaluator *self, ExecArray out, ExecArray in, PlanTensorRole role, gint64 layer,
      gint64 outputs)
{
  const gint64 hidden = self->model->hidden;

  const ExecFactor input = {
    exec_evaluator_own (self, in), role, PLAN_QUANTIZER_INPUT, layer, self->own_rows, hidden
  };
  const ExecFactor by = {
    exec_evaluator_weight (self, role, layer), role, PLAN_QUANTIZER_WEIGHT, layer, outputs, hidden
  };
  in = exec_evaluator_narrow (self, 0, &input, FALSE);
  const ExecArray weight = exec_evaluator_narrow (self, 1, &by, FALSE);
  RUN_AS (NULL, GEMM, EXEC_OPERANDS (exec_evaluator_own_rows (self, out, outputs), in, weight),
          self->own_rows, outputs, hidden, 1);
}

static void
down_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, ExecArray in, PlanTensorRole role,
          gint64 layer, gint64 outputs)
{
  const gint64 hidden = self->model->hidden, rows = self->own_rows;
  const ExecArray own = exec_evaluator_own_rows (self, dout, outputs);
  const ExecFactor gradient = { own, role, PLAN_QUANTIZER_GRADIENT, layer, rows, outputs };
  const ExecFactor input
      = { exec_evaluator_own (self, in), role, PLAN_QUANTIZER_INPUT, layer, rows, hidden };
  const ExecFactor by = {
    exec_evaluator_weight (self, role, layer), role, PLAN_QUANTIZER_WEIGHT, layer, outputs, hidden
  };
  ExecArray a = exec_evaluator_narrow (self, 0, &gradient, TRUE);
  ExecArray b = exec_evaluator_narrow (self, 1, &input, TRUE);

  RUN_AS (NULL, GEMM, EXEC_OPERANDS (exec_evaluator_gradient (self, role, layer), a, b), outputs,
          hidden, rows, exec_evaluator_narrow_layout (self, 2));
  a = exec_evaluator_narrow (self, 0, &gradient, FALSE);
  b = exec_evaluator_narrow (self, 1, &by, TRUE);
  RUN_AS (NULL, GEMM, EXEC_OPERANDS (exec_evaluator_own (self, din), a, b), rows, hidden, outputs,
          exec_evaluator_narrow_layout (self, 0));
}

static void
latent_norm (ExecEvaluator *self, gint64 layer, PlanTensorRole gain, gint64 cols, ExecArray out,
             ExecArray stats, ExecArray in)
{
  const PlanManner manner = exec_evaluator_norm_manner (self);

  RUN_AS (&manner, RMSNORM,
          EXEC_OPERANDS (exec_evaluator_own_rows (self, out, cols), stats,
                         exec_evaluator_own_rows (self, in, cols),
                         exec_evaluator_weight (self, gain, layer)),
          self->own_rows, cols);
}

static void
latent_norm_bwd (ExecEvaluator *self, gint64 layer, PlanTensorRole gain, gint64 cols, ExecArray din,
                 ExecArray dout, ExecArray in, ExecArray stats)
{
  const PlanManner manner = exec_evaluator_norm_manner (self);

  RUN_AS (&manner, RMSNORM_BWD,
          EXEC_OPERANDS (exec_evaluator_own_rows (self, din, cols),
                         exec_evaluator_gradient (self, gain, layer),
                         exec_evaluator_own_rows (self, dout, cols),
                         exec_evaluator_own_rows (self, in, cols),
                         exec_evaluator_weight (self, gain, layer), stats),
          self->own_rows, cols);
}

/* Scores are divided by the root of the heads' width, and multiplied by the square of yarn's
 * attention factor. */
static PlanManner
manner_of_scores (const ExecEvaluator *self)
{
  const PlanModel *m = self->model;
  const double rate
      = self->is_eval ? 0 : (double)self->job->of->plan.value[PLAN_ATTENTION_DROPOUT] / 1e6;
  const double growth = m->rope.mscale_all > 0 && m->rope.factor > 1
                            ? 1 + 0.1 * m->rope.mscale_all * log (m->rope.factor)
                            : 1;
  const double width = m->attn_scalar > 0 ? m->attn_scalar : (double)(m->nope_dim + m->rope_dim);
  const double squared = growth * growth;

  return (
      PlanManner){ { [PLAN_MANNER_SCALAR] = width / (squared * squared),
                     [PLAN_MANNER_CAP] = m->attn_softcap,
                     [PLAN_MANNER_RATE] = rate,
                     [PLAN_MANNER_FIRST] = rate > 0 ? (double)(self->tp_rank * m->heads) : 0 } };
}

typedef struct
{
  float c, s;
} Rotation;

static Rotation
rotation_of (const ExecEvaluator *self, gint64 row, gint64 pair, gboolean inverse)
{
  const gint64 position = self->places ? self->places[row] : row % self->seq;
  double cosine, sine;

  reference_rope_turn (&self->model->rope, pair, self->model->rope_dim, self->seq, position,
                       &cosine, &sine);
  return (Rotation){ (float)cosine, (float)(inverse ? -sine : sine) };
}

/* Rotates a pair of neighbours. */
static void
rotate_pair (Rotation by, float first, float second, ExecArray out, gint64 at)
{
  exec_evaluator_put (out, at, first * by.c - second * by.s);
  exec_evaluator_put (out, at + 1, second * by.c + first * by.s);
}

/* Makes the keys and values of one token, and rotates its queries. */
static void
make_heads (const ExecEvaluator *self, const ExecEvaluatorLatent *a, gint64 row)
{
  const PlanModel *m = self->model;
  const gint64 nope = m->nope_dim, rope = m->rope_dim, dim = nope + rope;
  const gint64 common = row * (m->kv_lora + rope) + m->kv_lora; /* keys that all heads share */

  for (gint64 head = row * m->heads; head < (row + 1) * m->heads; head++)
    {
      for (gint64 i = 0; i < nope; i++)
        exec_evaluator_put (a->k, head * dim + i,
                            exec_evaluator_get (a->kv, head * (nope + m->v_dim) + i));
      for (gint64 i = 0; i < m->v_dim; i++)
        exec_evaluator_put (a->v, head * m->v_dim + i,
                            exec_evaluator_get (a->kv, head * (nope + m->v_dim) + nope + i));
      for (gint64 i = 0; i < rope; i += 2)
        {
          const gint64 at = head * dim + nope + i;
          const Rotation by = rotation_of (self, row, i / 2, FALSE);

          rotate_pair (by, exec_evaluator_get (a->q, at), exec_evaluator_get (a->q, at + 1), a->q,
                       at);
          rotate_pair (by, exec_evaluator_get (a->kv_down, common + i),
                       exec_evaluator_get (a->kv_down, common + i + 1), a->k, at);
        }
    }
}

/* Makes the gradients of one token's latent vectors and queries from those of its keys, values and
 * rotated queries. */
static void
make_heads_bwd (const ExecEvaluator *self, const ExecEvaluatorLatent *a, gint64 row)
{
  const PlanModel *m = self->model;
  const gint64 nope = m->nope_dim, rope = m->rope_dim, dim = nope + rope, first = row * m->heads;
  const gint64 common = row * (m->kv_lora + rope) + m->kv_lora; /* keys that all heads share */

  for (gint64 head = first; head < first + m->heads; head++)
    {
      for (gint64 i = 0; i < nope; i++)
        exec_evaluator_put (a->dkv, head * (nope + m->v_dim) + i,
                            exec_evaluator_get (a->dk, head * dim + i));
      for (gint64 i = 0; i < m->v_dim; i++)
        exec_evaluator_put (a->dkv, head * (nope + m->v_dim) + nope + i,
                            exec_evaluator_get (a->dv, head * m->v_dim + i));
    }
  for (gint64 i = 0; i < rope; i += 2)
    {
      const Rotation back = rotation_of (self, row, i / 2, TRUE);
      float sum[2] = { 0 };

      for (gint64 head = first; head < first + m->heads; head++)
        {
          const gint64 at = head * dim + nope + i;

          rotate_pair (back, exec_evaluator_get (a->dq, at), exec_evaluator_get (a->dq, at + 1),
                       a->dq, at);
          sum[0] += exec_evaluator_get (a->dk, at);
          sum[1] += exec_evaluator_get (a->dk, at + 1);
        }
      rotate_pair (back, sum[0], sum[1], a->dkv_down, common + i);
    }
}

/* Copies the latent vectors of this rank's own rows out of kv_down, or their gradients back into
 * it. */
static void
move_latent (const ExecEvaluator *self, ExecArray all, ExecArray latent, gboolean is_back)
{
  const gint64 rank = self->model->kv_lora, width = rank + self->model->rope_dim;

  for (gint64 row = self->first_row; row < self->first_row + self->own_rows; row++)
    for (gint64 i = 0; i < rank; i++)
      if (is_back)
        exec_evaluator_put (all, row * width + i, exec_evaluator_get (latent, row * rank + i));
      else
        exec_evaluator_put (latent, row * rank + i, exec_evaluator_get (all, row * width + i));
}

static ExecArray
places_of (const ExecEvaluator *self)
{
  return (ExecArray){ .data = self->places, .dtype = PLAN_DTYPE_I32 };
}

/* Makes the latent vectors of this rank's own rows. */
static void
make_latents (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const ExecEvaluatorLatent *a = l->latent;

  if (m->q_lora > 0)
    {
      down (self, a->q_down, l->normed1, PLAN_TENSOR_Q_DOWN, layer, m->q_lora);
      latent_norm (self, layer, PLAN_TENSOR_Q_UP_NORM, m->q_lora, a->q_normed, a->q_stats,
                   a->q_down);
    }
  down (self, a->kv_down, l->normed1, PLAN_TENSOR_KV_DOWN, layer, m->kv_lora + m->rope_dim);
  move_latent (self, a->kv_down, a->latent, FALSE);
  latent_norm (self, layer, PLAN_TENSOR_KV_UP_NORM, m->kv_lora, a->normed, a->stats, a->latent);
}

/* What the random numbers of dropout are made of: the layer's key, and the number of the first
 * token in the run. Without dropout nobody reads them. */
typedef struct
{
  guint32 key[2];
  gint64 start;
  ExecArray operands[2];
} Random;

static void
find_random (const ExecEvaluator *self, const PlanManner *manner, gint64 layer, Random *out)
{
  const gboolean drops = manner->value[PLAN_MANNER_RATE] > 0;

  exec_evaluator_key (self, layer, out->key);
  out->start = self->numbers[0];
  out->operands[0] = (ExecArray){ .data = drops ? out->key : NULL, .dtype = PLAN_DTYPE_I32 };
  out->operands[1] = (ExecArray){ .data = drops ? &out->start : NULL, .dtype = PLAN_DTYPE_I64 };
}

/* Computes the attention of this rank's heads for all rows. */
static void
attend (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const ExecEvaluatorLatent *a = l->latent;
  const PlanManner manner = manner_of_scores (self);
  Random random;

  if (m->q_lora > 0)
    exec_evaluator_linear (self, a->q, a->q_normed, PLAN_TENSOR_Q_UP, EXEC_NO_BIAS, layer,
                           q_width (m), m->q_lora);
  else
    exec_evaluator_linear (self, a->q, l->normed1, PLAN_TENSOR_Q, EXEC_NO_BIAS, layer, q_width (m),
                           m->hidden);
  exec_evaluator_linear (self, a->kv, a->normed, PLAN_TENSOR_KV_UP, EXEC_NO_BIAS, layer,
                         kv_width (m), m->kv_lora);
  for (gint64 row = 0; row < self->rows; row++)
    make_heads (self, a, row);
  find_random (self, &manner, layer, &random);
  RUN_AS (&manner, LATENT_ATTENTION,
          EXEC_OPERANDS (l->attention, l->lse, a->q, a->k, a->v, { 0 }, places_of (self),
                         random.operands[0], random.operands[1]),
          self->mbs, self->seq, m->heads, m->nope_dim + m->rope_dim, m->v_dim, self->seq);
}

void
exec_evaluator_latent (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;

  EXEC_EACH (self, peer, make_latents (peer, layer));
  if (m->q_lora > 0)
    {
      EXEC_JOIN_COLS (self, peer, peer->layers[layer].latent->q_normed, m->q_lora);
    }
  EXEC_JOIN_COLS (self, peer, peer->layers[layer].latent->normed, m->kv_lora);
  EXEC_JOIN_COLS (self, peer, peer->layers[layer].latent->kv_down, m->kv_lora + m->rope_dim);
  EXEC_EACH (self, peer, attend (peer, layer));
}

/* Computes what this rank's heads add to the gradients of all rows' latent vectors. */
static void
attend_bwd (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const ExecEvaluatorLatent *a = l->latent;
  const PlanManner manner = manner_of_scores (self);
  Random random;

  find_random (self, &manner, layer, &random);
  RUN_AS (&manner, LATENT_ATTENTION_BWD,
          EXEC_OPERANDS (a->dq, a->dk, a->dv, self->dattention, l->attention, l->lse, a->q, a->k,
                         a->v, { 0 }, places_of (self), random.operands[0], random.operands[1]),
          self->mbs, self->seq, m->heads, m->nope_dim + m->rope_dim, m->v_dim, self->seq);
  for (gint64 row = 0; row < self->rows; row++)
    make_heads_bwd (self, a, row);
  exec_evaluator_linear_bwd (self, a->dnormed, a->dkv, a->normed, PLAN_TENSOR_KV_UP, EXEC_NO_BIAS,
                             layer, kv_width (m), m->kv_lora);
  if (m->q_lora > 0)
    exec_evaluator_linear_bwd (self, a->dq_normed, a->dq, a->q_normed, PLAN_TENSOR_Q_UP,
                               EXEC_NO_BIAS, layer, q_width (m), m->q_lora);
  else
    exec_evaluator_linear_bwd (self, a->dx, a->dq, l->normed1, PLAN_TENSOR_Q, EXEC_NO_BIAS, layer,
                               q_width (m), m->hidden);
}

/* Computes the gradient of the norm's output, in this rank's own rows, from the gradients of their
 * latent vectors, which are summed over the heads of all ranks by now. */
static void
make_latents_bwd (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[layer];
  const ExecEvaluatorLatent *a = l->latent;

  latent_norm_bwd (self, layer, PLAN_TENSOR_KV_UP_NORM, m->kv_lora, a->dlatent, a->dnormed,
                   a->latent, a->stats);
  move_latent (self, a->dkv_down, a->dlatent, TRUE);
  down_bwd (self, self->branch, a->dkv_down, l->normed1, PLAN_TENSOR_KV_DOWN, layer,
            m->kv_lora + m->rope_dim);
  if (m->q_lora > 0)
    {
      latent_norm_bwd (self, layer, PLAN_TENSOR_Q_UP_NORM, m->q_lora, a->dq_down, a->dq_normed,
                       a->q_down, a->q_stats);
      down_bwd (self, a->dx, a->dq_down, l->normed1, PLAN_TENSOR_Q_DOWN, layer, m->q_lora);
    }
  RUN_AS (NULL, ACCUMULATE,
          EXEC_OPERANDS (exec_evaluator_own (self, self->branch), exec_evaluator_own (self, a->dx)),
          self->own_rows * m->hidden);
}

void
exec_evaluator_latent_bwd (ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;

  EXEC_EACH (self, peer, attend_bwd (peer, layer));
  EXEC_SUM_COLS (self, peer, peer->layers[layer].latent->dnormed, m->kv_lora);
  EXEC_SUM_COLS (self, peer, peer->layers[layer].latent->dkv_down, m->kv_lora + m->rope_dim);
  if (m->q_lora > 0)
    {
      EXEC_SUM_COLS (self, peer, peer->layers[layer].latent->dq_normed, m->q_lora);
    }
  else
    {
      EXEC_SUM_PARTS (self, peer, peer->layers[layer].latent->dx);
    }
  EXEC_EACH (self, peer, make_latents_bwd (peer, layer));
}
