/* Where a step's time goes: op by op, by how often each runs, how long it takes and at what rate.
 */
#pragma once
#include "advise/predict.h"
G_BEGIN_DECLS

/* Ops of one kind with equal sizes, that write the same kind of buffer on one stream. */
typedef struct
{
  const char *op, *writes, *stream;
  char *sizes;       /* "8192 x 4096 x 6144"; of a collective its ranks */
  gint64 times;      /* in a step */
  gint64 total_ns;   /* as they run beside others */
  double flops;      /* of one; 0: it is bound by memory, or by links */
  double peak_flops; /* the device's in its format */
  double bytes;      /* of one: through memory; of a collective the whole message */
} AdviseOpTime;

/* Those that take most first. Streams run side by side: only those of compute add up. NULL with an
 * error where the costs are not known. */
GArray *advise_explain_time (const AdviseInput *input, const AdvisePrediction *prediction,
                             GError **error);

G_END_DECLS
