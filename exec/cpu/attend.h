/* What all ops of attention have in common: where their operands lie, and how attention is computed
 * from these. The size of the scratch is in the op list. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* Where the heads of an operand lie: `width` elements in a row, of which the first head begins at
 * `at`. */
typedef struct
{
  guint operand;
  guint64 width, at;
} ExecCpuHeads;

/* Which operands of an op are which. Only an op of the backward pass has dout, dq, dk and dv. */
typedef struct
{
  guint lse, places, work, key, start;
  ExecCpuHeads q, k, v, out, dout, dq, dk, dv;
} ExecCpuAttentionOperands;

/* Computes out and lse from q, k and v; and dq, dk and dv from these and dout. */
void exec_cpu_attend (const ExecArgs *args, const ExecCpuAttentionOperands *of);
void exec_cpu_attend_bwd (const ExecArgs *args, const ExecCpuAttentionOperands *of);

G_END_DECLS
