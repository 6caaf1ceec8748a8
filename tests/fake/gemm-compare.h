/* cuBLASLt's products against gemm-plain.cu's, on whatever stands for the device, and their speed.
 */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
#include <stdio.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 m, n, k;
  gint64 layout; /* of the op list */
  PlanDtype out, factors;
} GemmCase;

/* Prints a line: milliseconds over `repeats` calls after one that does not count, TFLOP/s, and how
 * far the first rows of the two results are apart, as a share of their size; fails where that is
 * more than the rounding of the result's format explains. */
void gemm_compare (const GemmCase *c, guint repeats, FILE *out);

G_END_DECLS
