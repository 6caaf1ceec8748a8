/* Memory explained: the usual estimate by formulas beside the plan's bytes, line by line, and the
 * buffers that are live at the peak. */
#pragma once
#include "advise/predict.h"
G_BEGIN_DECLS

/* All lines add up to the device's memory. */
typedef struct
{
  const char *what;
  char *formula;    /* with its numbers; NULL: the arithmetic leaves it out */
  double naive_mib; /* 0 where it does */
  guint64 bytes;    /* at the peak, by the plan */
} AdviseMemoryLine;

GArray *advise_explain_memory (const AdvisePrediction *prediction);

/* Equal buffers. */
typedef struct
{
  PlanCategory category;
  const char *name; /* the schedule's */
  guint64 each;     /* bytes, in whole granules of the stack's allocator */
  gint64 at_peak, resting;
} AdviseResident;

/* Buffers that are live at the peak or between steps: by category, in each the largest first. */
GArray *advise_residents (const AdvisePrediction *prediction);

G_END_DECLS
