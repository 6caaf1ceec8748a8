/* PlanSsm: layers of a state-space model, Mamba-2. All 0 in a model without them. Such a model's
 * layers follow a pattern, a letter each (Megatron-LM hybrid_layer_allocation.py, Symbols): every
 * layer is one part by itself, with a norm before it and a residual around it. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MAX_PATTERN 255 /* most layers */

typedef enum
{
  PLAN_LETTER_SSM = 'M',
  PLAN_LETTER_ATTENTION = '*',
  PLAN_LETTER_MLP = '-',
  PLAN_LETTER_EXPERTS = 'E'
} PlanLetter;

typedef struct
{
  char of[PLAN_MAX_PATTERN + 1]; /* the letter of each layer; "": layers are transformers' */
} PlanPattern;

typedef struct
{
  gint64 heads, head_dim;
  gint64 groups, state; /* groups of heads that share B and C; the width of a state */
  gint64 conv;          /* tokens that the convolution of x, B and C sees */
} PlanSsm;

/* Tokens that the scan takes at once (megatron/core/ssm/mamba_mixer.py at d98e8a64, chunk_size). */
#define PLAN_SSM_CHUNK 128

/* The width of x, of its gate z and of the output; of B and C together; of what the convolution
 * turns: x, B and C; of what the projection makes: these, z, and a step (dt) per head. */
static inline gint64
plan_ssm_inner (const PlanSsm *self)
{
  return self->heads * self->head_dim;
}

static inline gint64
plan_ssm_shared (const PlanSsm *self)
{
  return 2 * self->groups * self->state;
}

static inline gint64
plan_ssm_turned (const PlanSsm *self)
{
  return plan_ssm_inner (self) + plan_ssm_shared (self);
}

static inline gint64
plan_ssm_projected (const PlanSsm *self)
{
  return plan_ssm_turned (self) + plan_ssm_inner (self) + self->heads;
}

G_END_DECLS
