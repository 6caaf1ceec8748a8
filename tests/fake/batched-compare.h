/* Attention by products in batches against exec_kernels_cpu's, on whatever stands for the device:
 * the fake one or a real GPU. */
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
  gint64 queries;  /* that the scratch has room for, of one key head; 0: what plans give */
  gint64 window;   /* keys that a query sees at most; below 0: those of chunks of so many; 0: all */
  gint64 v_dim;    /* of latent attention, where keys have no other heads than queries; 0: plain */
} BatchedCase;

/* A case of odd sizes, by its seed. */
BatchedCase batched_case_random (guint32 seed);

/* Runs both, twice with the same bits, and asserts that out, lse and the gradients are near; prints
 * a line per pass, of `repeats` calls after one that does not count, unless that is 0. */
void batched_compare (const BatchedCase *self, guint repeats, FILE *out);

G_END_DECLS
