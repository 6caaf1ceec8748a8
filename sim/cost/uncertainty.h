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

/* The error range of the closest group of runs whose errors are known: the runs of this stack on
 * this GPU, else of the stack, else on the GPU, else all. Runs of models with experts and of those
 * without are groups of their own; the other kind is taken where nothing is known of the subject's.
 * `sources` is how many published the group's runs; `pct` is below 0 where no group is known. */
SimErrorRange sim_uncertainty_spread (const SimAdjustments *self, const char *gpu,
                                      const char *stack, gboolean has_experts);

/* As sim_uncertainty_spread, widened by every way in which the subject differs from the runs that
 * the parameters were fitted to. `sources` is 0 where the subject's own source has such runs. */
SimErrorRange sim_uncertainty_of_time (const SimAdjustments *self, const SimSubject *subject);

/* Names what the subject has that few or none of those runs had: "stack=fsdp1, cuda_graph=on". Left
 * out is what makes less than a tenth of the square of the error range. NULL: nothing. The caller
 * frees. */
char *sim_uncertainty_unlike (const SimAdjustments *self, const SimSubject *subject);

/* The memory errors of the stack's runs, or else of all runs. NULL: none are known. */
const SimMemoryError *sim_uncertainty_of_memory (const SimAdjustments *self, const char *stack);

G_END_DECLS
