/* The window and the chunks of attention, for all of its launchers on GPUs. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* The most keys that a query sees: the window, or the sequence if there is none. */
static inline gint64
exec_cuda_window (const ExecArgs *args)
{
  const gint64 window = (gint64)exec_manner (args, PLAN_MANNER_WINDOW);
  return window > 0 ? window : args->op->dims[1];
}

/* The number of tokens of a chunk: queries see no keys of earlier chunks. */
static inline gint64
exec_cuda_chunk (const ExecArgs *args)
{
  const gint64 chunk = (gint64)exec_manner (args, PLAN_MANNER_CHUNK);
  return chunk > 0 ? chunk : args->op->dims[1];
}

G_END_DECLS
