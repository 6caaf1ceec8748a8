/* Compares attention by batched products with exec_kernels_cpu's, on the fake device or on a real
 * GPU. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
#include <stdio.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 batch, seq, heads, kv_heads, dim;
  PlanDtype dtype; /* of qkv and dout; fp32 or bf16 */
  PlanDtype out;   /* of out and dqkv */
  gint64
      queries; /* queries of one key head that the scratch has room for; 0: as many as plans give */
  gint64 window; /* keys that a query sees at most; negative: the size of chunks; 0: all keys */
  gint64 v_dim;  /* the size of values in latent attention, which has as many key heads as query
                    heads; 0: plain attention */
  guint extras;  /* of BatchedExtra; latent attention has no slopes */
} BatchedCase;

/* What may become of scores and weights. */
typedef enum
{
  BATCHED_BOUNDED = 1 << 0,
  BATCHED_SLOPES = 1 << 1,
  BATCHED_DROPOUT = 1 << 2,
  BATCHED_DOCUMENTS = 1 << 3,
} BatchedExtra;

/* A random case of odd sizes. */
BatchedCase batched_case_random (guint32 seed);

/* Runs both kernels, each twice to see that they repeat their bits, and asserts that out, lse and
 * the gradients are near. Where `repeats` is not 0, prints a line per pass: its time over so many
 * calls, after one call that is not timed. */
void batched_compare (const BatchedCase *self, guint repeats, FILE *out);

G_END_DECLS
