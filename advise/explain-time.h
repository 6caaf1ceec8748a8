/* Explains a step's time op by op: how often each runs, how long it takes and at what rate. */
#pragma once
#include "advise/predict.h"
G_BEGIN_DECLS

/* Ops of one kind and size on one stream that write the same kind of buffer. */
typedef struct
{
  const char *op, *writes, *stream;
  char *sizes;       /* "8192 x 4096 x 6144", or a collective's ranks */
  gint64 times;      /* number in a step */
  gint64 total_ns;   /* beside the ops that overlap them */
  double flops;      /* of one op; 0: memory or links limit it */
  double peak_flops; /* of the device in the op's format */
  double bytes;      /* of one op: through memory, or a collective's whole message */
} AdviseOpTime;

/* Lists the ops, those with the most time first. Streams overlap, so only the times of compute add
 * up. NULL with an error where costs are not known. */
GArray *advise_explain_time (const AdviseInput *input, const AdvisePrediction *prediction,
                             GError **error);

G_END_DECLS
