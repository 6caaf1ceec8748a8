/* SPDX-License-Identifier: Apache-2.0 */
/* Norms and rotary positions of queries and keys, and the manner of attention. */
#include "config.h"

#include "tests/reference/evaluate-experts.h"
#include "tests/reference/rope.h"

#include <string.h>

#define RUN_AS(manner, kind, operands, ...) \
  exec_evaluator_run_as (self, PLAN_OP_##kind, operands, (gint64[]){ __VA_ARGS__ }, manner)

static gboolean
is_windowed (const PlanModel *m, gint64 layer)
{
  const gint64 behind = layer - m->window_from;

  if (m->full_every > 0)
    return layer % m->full_every != m->full_every - 1;
  return m->window > 0 && behind >= 0 && behind % m->window_every == 0;
}

PlanManner
exec_evaluator_attention_manner (const ExecEvaluator *self, gint64 layer)
{
  const PlanModel *m = self->model;
  PlanManner manner = { 0 };

  if (is_windowed (m, layer))
    manner.value[m->window_chunks ? PLAN_MANNER_CHUNK : PLAN_MANNER_WINDOW] = (double)m->window;
  manner.value[PLAN_MANNER_SCALAR] = m->attn_scalar;
  manner.value[PLAN_MANNER_CAP] = m->attn_softcap;
  manner.value[PLAN_MANNER_ALIBI] = m->positions == PLAN_POSITIONS_ALIBI ? 1 : 0;
  if (m->positions == PLAN_POSITIONS_ALIBI && self->tp > 1)
    {
      manner.value[PLAN_MANNER_FIRST] = (double)(self->tp_rank * m->heads);
      manner.value[PLAN_MANNER_WHOLE] = (double)(self->tp * m->heads);
    }
  if (!self->is_eval && self->job->of->plan.value[PLAN_ATTENTION_DROPOUT] > 0)
    {
      manner.value[PLAN_MANNER_RATE]
          = (double)self->job->of->plan.value[PLAN_ATTENTION_DROPOUT] / 1e6;
      manner.value[PLAN_MANNER_FIRST] = (double)(self->tp_rank * m->heads);
    }
  return manner;
}

/* Rotates queries and keys in `heads` by RoPE, or back if `inverse`. */
static void
rotate_heads (ExecEvaluator *self, ExecArray heads, gint64 layer, gboolean inverse)
{
  const PlanModel *m = self->model;
  const PlanRope local = { .theta = m->rope_local };
  const PlanRope *rope = m->rope_local > 0 && is_windowed (m, layer) ? &local : &m->rope;
  const gint64 rotary_dim = (gint64)((double)m->head_dim * m->rope_fraction);
  const gint64 half = rotary_dim / 2;

  for (gint64 row = 0; row < self->rows; row++)
    for (gint64 head = 0; head < m->heads + m->kv_heads; head++)
      for (gint64 i = 0; i < half; i++)
        {
          const gint64 at = row * self->qkv_width + head * m->head_dim + i;
          const float a = exec_evaluator_get (heads, at), b = exec_evaluator_get (heads, at + half);
          double cosine, sine;

          reference_rope_turn (rope, i, rotary_dim, self->whole_seq,
                               self->places ? self->places[row] : row % self->seq, &cosine, &sine);
          const float c = (float)cosine, s = (float)(inverse ? -sine : sine);
          exec_evaluator_put (heads, at, a * c - b * s);
          exec_evaluator_put (heads, at + half, b * c + a * s);
        }
}

/* Whether queries and keys of a layer have rotary positions. */
static gboolean
rotates (const PlanModel *m, gint64 layer)
{
  const gboolean is_nope = m->nope_every > 0 && layer % m->nope_every == m->nope_every - 1;

  return m->positions == PLAN_POSITIONS_ROPE && !is_nope;
}

gboolean
exec_evaluator_has_head_norms (const PlanModel *m)
{
  return m->qk_norm || m->qk_l2_norm != PLAN_QK_L2_OFF;
}

/* Whether queries and keys of a layer have norms. Norms with weights are in all layers; L2 norms,
 * which have none, are in all layers or in those with rotary positions. */
static gboolean
norms_heads (const PlanModel *m, gint64 layer)
{
  return m->qk_norm || m->qk_l2_norm == PLAN_QK_L2_ALL
         || (m->qk_l2_norm == PLAN_QK_L2_ROPE && rotates (m, layer));
}

/* How many norms there are of so many heads. */
static gint64
norms_of (const PlanModel *m, gint64 heads)
{
  return m->qk_norm == PLAN_QK_NORM_FULL ? 1 : heads;
}

/* Copies heads, or their gradients, past the norm that a layer does not have and others do. */
static void
pass_by (const ExecEvaluator *self, ExecArray out, ExecArray in)
{
  if (out.data != in.data)
    memcpy (out.data, in.data,
            plan_dtype_bytes (in.dtype, (guint64)(self->rows * self->qkv_width)));
}

/* Makes `heads`, which attention reads, of `qkv`: norms, then rotary positions. */
void
exec_evaluator_prepare_heads (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 layer)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_norm_manner (self);

  if (norms_heads (m, layer))
    RUN_AS (&manner, HEAD_NORM,
            EXEC_OPERANDS (l->heads, l->head_stats, l->qkv,
                           exec_evaluator_weight (self, PLAN_TENSOR_Q_NORM, layer),
                           exec_evaluator_weight (self, PLAN_TENSOR_K_NORM, layer)),
            self->rows, norms_of (m, m->heads), norms_of (m, m->kv_heads),
            m->heads * m->head_dim / norms_of (m, m->heads),
            m->kv_heads * m->head_dim / norms_of (m, m->kv_heads));
  else
    pass_by (self, l->heads, l->qkv);
  if (rotates (m, layer))
    rotate_heads (self, l->heads, layer, FALSE);
}

/* The same backwards: makes dqkv of dheads. */
void
exec_evaluator_prepare_heads_bwd (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 layer)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_norm_manner (self);

  if (rotates (m, layer))
    rotate_heads (self, self->dheads, layer, TRUE);
  if (norms_heads (m, layer))
    RUN_AS (&manner, HEAD_NORM_BWD,
            EXEC_OPERANDS (self->dqkv, exec_evaluator_gradient (self, PLAN_TENSOR_Q_NORM, layer),
                           exec_evaluator_gradient (self, PLAN_TENSOR_K_NORM, layer), self->dheads,
                           l->qkv, exec_evaluator_weight (self, PLAN_TENSOR_Q_NORM, layer),
                           exec_evaluator_weight (self, PLAN_TENSOR_K_NORM, layer), l->head_stats),
            self->rows, norms_of (m, m->heads), norms_of (m, m->kv_heads),
            m->heads * m->head_dim / norms_of (m, m->heads),
            m->kv_heads * m->head_dim / norms_of (m, m->kv_heads));
  else
    pass_by (self, self->dqkv, self->dheads);
}
