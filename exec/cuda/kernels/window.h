/* The window of attention, for all that do it on GPUs. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* Keys that a query of an attention sees at most. */
static inline gint64
exec_cuda_window (const ExecArgs *args)
{
  const gint64 window = (gint64)exec_manner (args, PLAN_MANNER_WINDOW);
  return window > 0 ? window : args->op->dims[1];
}

G_END_DECLS
