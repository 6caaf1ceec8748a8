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

/* The operands of an op; the last four, backwards only. */
typedef struct
{
  guint lse, places, work, key, start; /* of `key` and `start` PLAN_MAX_REFS: it has none */
  ExecCpuHeads q, k, v, out, dout, dq, dk, dv;
} ExecCpuAttended;

/* From q, k and v to out and lse; from these and dout to dq, dk and dv. */
void exec_cpu_attend (const ExecArgs *args, const ExecCpuAttended *of);
void exec_cpu_attend_bwd (const ExecArgs *args, const ExecCpuAttended *of);

G_END_DECLS
