/* SimErrorRange: how far off a prediction may be. It follows from the errors on the runs that a set
 * of parameters was fitted to, and from how the predicted run differs from those. */
#pragma once
#include "sim/cost/adjust.h"
G_BEGIN_DECLS

/* What is predicted. */
typedef struct
{
  const char *gpu, *stack;
  gint64 devices;
  double exposed;           /* share of the step that is exposed communication */
  gint64 network;           /* Gbit/s per device; 0: a single node */
  const char *const *modes; /* NULL-terminated; NULL: none */
  const char *source;       /* who ran it; NULL: not known, as of a run that is to come */
  gboolean has_experts;
} SimSubject;

/* The error range of the closest group of runs that is known, of models with experts or of those
 * without: of this stack and GPU, of the stack, of the GPU, of all runs; `sources` is how many
 * published those. Where none of such models is known it is that of the others. `pct` is below 0
 * where none is. */
SimErrorRange sim_uncertainty_spread (const SimAdjustments *self, const char *gpu,
                                      const char *stack, gboolean has_experts);

/* As sim_uncertainty_spread, widened by every way in which the subject differs from the runs that
 * were seen; `sources` is 0 where the subject is of a source that was seen. */
SimErrorRange sim_uncertainty_of_time (const SimAdjustments *self, const SimSubject *subject);

/* What the subject has that few or none of those runs had, as far as it is a tenth or more of the
 * square of the error range: "stack=fsdp1, cuda_graph=on". NULL: nothing. The caller frees. */
char *sim_uncertainty_unlike (const SimAdjustments *self, const SimSubject *subject);

/* The memory errors of the stack's runs, or else of all runs. NULL: none are known. */
const SimMemoryError *sim_uncertainty_of_memory (const SimAdjustments *self, const char *stack);

G_END_DECLS
