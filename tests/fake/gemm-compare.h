/* Compares cuBLASLt's products with gemm-plain.cu's, on the fake device or on a real GPU, and times
 * cuBLASLt's. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
#include <stdio.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 m, n, k;
  gint64 layout; /* as an op list has it */
  PlanDtype out, factors;
} GemmCase;

/* Prints a line: milliseconds over `repeats` calls after one that is not timed, TFLOP/s, and the
 * distance between the first rows of the two results as a share of their norm. Fails where that is
 * more than the rounding of the result's format explains. */
void gemm_compare (const GemmCase *c, guint repeats, FILE *out);

G_END_DECLS
