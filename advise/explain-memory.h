/* Explains memory: the usual estimate by formulas beside the plan's bytes, line by line, and the
 * buffers that are live at the peak. */
#pragma once
#include "advise/predict.h"
G_BEGIN_DECLS

/* One line; all lines add up to the device's memory. */
typedef struct
{
  const char *what;
  char *formula;    /* with its numbers; NULL: the usual estimate leaves this out */
  double naive_mib; /* 0 where it is left out */
  guint64 bytes;    /* at the peak, by the plan */
} AdviseMemoryLine;

GArray *advise_explain_memory (const AdvisePrediction *prediction);

/* Buffers of the same name and size. */
typedef struct
{
  PlanCategory category;
  const char *name; /* the schedule's */
  guint64 each;     /* bytes of one, rounded up to the allocator's granule */
  gint64 at_peak, resting;
} AdviseResident;

/* Lists the buffers that are live at the peak or between steps, by category, the largest first. */
GArray *advise_residents (const AdvisePrediction *prediction);

G_END_DECLS
