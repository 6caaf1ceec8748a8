/* PlanDelta: layers of linear attention by the gated delta rule (Gated DeltaNet), in place of
 * attention. All 0 in a model without them. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 attn_every; /* one layer in so many, the last of them, has attention; the others these */
  gint64 key_heads, value_heads, key_dim, value_dim;
  gint64 conv; /* tokens that the convolution of queries, keys and values sees */
} PlanDelta;

/* Tokens that the rule takes at once (fla.ops.gated_delta_rule, chunk_size). */
#define PLAN_DELTA_CHUNK 64

/* Widths of all keys (and of all queries), and of all values; what the convolution turns: queries,
 * keys and values; what the projection makes: these, the output's gate, and a strength (beta) and a
 * decay (alpha) per head of values. */
static inline gint64
plan_delta_keys (const PlanDelta *self)
{
  return self->key_heads * self->key_dim;
}

static inline gint64
plan_delta_values (const PlanDelta *self)
{
  return self->value_heads * self->value_dim;
}

static inline gint64
plan_delta_turned (const PlanDelta *self)
{
  return 2 * plan_delta_keys (self) + plan_delta_values (self);
}

static inline gint64
plan_delta_projected (const PlanDelta *self)
{
  return plan_delta_turned (self) + plan_delta_values (self) + 2 * self->value_heads;
}

G_END_DECLS
