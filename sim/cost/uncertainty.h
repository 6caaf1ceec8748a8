/* SimErrorRange: how far off predictions are, by what a set of parameters says of the runs that it
 * was fitted to, and of what lies between these and what is predicted. */
#pragma once
#include "sim/cost/adjust.h"
G_BEGIN_DECLS

/* What a prediction of time is of. */
typedef struct
{
  const char *gpu, *stack;
  gint64 devices;
  double exposed;           /* share of the step */
  gint64 network;           /* Gbit/s of a device; 0: one node */
  const char *const *modes; /* NULL-terminated; NULL: none */
} SimSubject;

/* The closest that is known: of this GPU and stack, the stack, the GPU, all; `pct` is below 0:
 * nothing. */
SimErrorRange sim_uncertainty_spread (const SimAdjustments *self, const char *gpu,
                                      const char *stack);

/* The same, and what lies between the subject and the runs that were seen. */
SimErrorRange sim_uncertainty_of_time (const SimAdjustments *self, const SimSubject *subject);

/* Of the stack, else of all; NULL: nothing is known. */
const SimMemoryError *sim_uncertainty_of_memory (const SimAdjustments *self, const char *stack);

G_END_DECLS
