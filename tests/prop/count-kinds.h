/* What tests count of a model's layers and their products from its dimensions alone. */
#pragma once
#include "planner/model/model.h"
G_BEGIN_DECLS

/* Counts the layers with experts; a multi-token-prediction module contains one. */
static inline gint64
count_moe (const PlanModel *m)
{
  gint64 n = m->mtp;
  for (gint64 i = 0; i < m->layers; i++)
    n += *m->pattern.of ? m->pattern.of[i] == 'E'
                        : i >= m->dense_layers && (i + 1) % m->moe_every == 0;
  return n;
}

/* Counts the layers of a pattern that have a letter. */
static inline gint64
count_letter (const PlanModel *m, char letter)
{
  gint64 n = 0;
  for (const char *at = m->pattern.of; *at; at++)
    n += *at == letter;
  return n;
}

/* Layers with a state: of linear attention all but the last of every so many. */
static inline gint64
count_linear (const PlanModel *m)
{
  return *m->pattern.of            ? count_letter (m, 'M')
         : m->delta.attn_every > 0 ? m->layers - m->layers / m->delta.attn_every
                                   : 0;
}

/* The same as below of layers by a pattern. */
static inline double
work_by_letters (const PlanModel *m)
{
  const double h = (double)m->hidden;
  const gint64 inner = m->ssm.heads * m->ssm.head_dim;
  const double state = (double)(3 * inner + 2 * m->ssm.groups * m->ssm.state + m->ssm.heads);
  const double narrow = (double)m->expert_hidden, read = narrow > 0 ? narrow : h;
  return (double)count_letter (m, 'M') * h * state
         + (double)count_letter (m, '*') * h * (double)(2 * (m->heads + m->kv_heads) * m->head_dim)
         + (double)count_letter (m, '-') * 2 * h * (double)m->ffn
         + (double)count_letter (m, 'E')
               * (2 * read * (double)(m->topk * m->expert_ffn) + 2 * h * narrow
                  + h * (double)(2 * m->shared_ffn + m->experts));
}

/* Multiply-adds of a token in the layers' GEMMs: the elements of the weights that it uses. */
static inline double
work_by_tensors (const PlanModel *m)
{
  if (*m->pattern.of)
    return work_by_letters (m);
  const double h = (double)m->hidden, f = 3 * h;
  const double latent
      = (double)(m->q_lora > 0 ? m->q_lora * m->hidden + m->q_lora * m->heads * m->head_dim
                               : m->hidden * m->heads * m->head_dim)
        + h * (double)(m->kv_lora + m->rope_dim)
        + (double)(m->kv_lora * m->heads * (m->nope_dim + m->v_dim))
        + h * (double)(m->heads * m->v_dim);
  const gint64 gates = m->attn_gate ? m->heads : 0;
  const double grouped = h * (double)((2 * m->heads + gates + 2 * m->kv_heads) * m->head_dim);
  const PlanDelta *d = &m->delta;
  const double linear = h
                        * (double)(2 * d->key_heads * d->key_dim + 3 * d->value_heads * d->value_dim
                                   + 2 * d->value_heads);
  const double n_linear = (double)count_linear (m);
  const double moe = (double)count_moe (m), dense = (double)(m->layers + m->mtp) - moe;
  return n_linear * linear
         + ((double)(m->layers + m->mtp) - n_linear) * (m->kv_lora > 0 ? latent : grouped)
         + (double)m->mtp * 2 * h * h + dense * f * (double)m->ffn
         + moe
               * (f * (double)(m->topk * m->expert_ffn + m->shared_ffn)
                  + h * (double)(m->experts + (m->shared_gate ? 1 : 0)));
}

G_END_DECLS
