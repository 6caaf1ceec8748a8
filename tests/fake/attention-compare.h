/* cuDNN's attention against exec_kernels_cpu's, on whatever stands for the device: the same shapes
 * for a fake cuDNN and for the real one. */
#pragma once
#include "exec/cuda/attention-cudnn.h"
#include <check.h>
#include <glib.h>
#include <stdio.h>
G_BEGIN_DECLS

/* The operands and results of attention, forwards and backwards, in host memory. */
typedef struct
{
  ExecAttentionShape shape;
  guint64 qkv_count, out_count, lse_count;
  guint8 *qkv, *out, *dout, *dqkv;
  float *lse;
  double scalar; /* scores are divided by its square root; 0: by that of head_dim */
} AttentionCase;

void attention_case_init (AttentionCase *self, const ExecAttentionShape *shape, guint32 seed);
void attention_case_clear (AttentionCase *self);

/* Allocates device memory, and copies `from` to it unless that is NULL. */
void *attention_to_device (const void *from, guint64 bytes);

/* A test case that compares both over many shapes. `setup` and `teardown` (or NULL) run around each
 * shape. */
TCase *attention_compare_case (SFun setup, SFun teardown);

/* Prints a line per pass: its time over `repeats` calls, after one call that is not timed. */
void attention_compare_speed (const ExecAttentionShape *shape, guint repeats, FILE *out);

G_END_DECLS
