/* Fits what measured runs teach about the errors of predictions: all of a set except its
 * factors. */
#pragma once
#include "advise/validate.h"
G_BEGIN_DECLS

/* Fits the scale of errors of reserved memory, by stack and over all, from rows for fitting. Adds
 * nothing where there are too few. */
void advise_uncertainty_fit_memory (const AdviseValidation *validation, SimAdjustments *set);

/* Fits how far off predictions are in comparing two plans for one task that they see as close, from
 * rows for fitting. Changes nothing where there are too few. */
void advise_uncertainty_fit_choices (const AdviseValidation *validation, SimAdjustments *set);

/* Notes the runs that the set was fitted to (AdviseRun), each with its weight, beside those of
 * `base`, which may be NULL. */
void advise_uncertainty_note_runs (const GPtrArray *runs, const double *weights,
                                   const SimAdjustments *base, SimAdjustments *set);

G_END_DECLS
