/* What measured runs teach about how sure predictions are: a set's lines beside its factors. */
#pragma once
#include "advise/validate.h"
G_BEGIN_DECLS

/* The scale of errors of reserved memory, by stack and of all, from rows to fit. Adds nothing where
 * there are too few. */
void advise_uncertainty_fit_memory (const AdviseValidation *validation, SimAdjustments *set);

/* How far off predictions are of how two plans for one task compare, where they say that it is
 * little, from rows to fit. Leaves the set as it is where there are too few. */
void advise_uncertainty_fit_choices (const AdviseValidation *validation, SimAdjustments *set);

/* Notes the runs that the set was fitted to (AdviseRun), each with its weight, beside what `base`
 * has seen; NULL: nothing. */
void advise_uncertainty_note_runs (const GPtrArray *runs, const double *weights,
                                   const SimAdjustments *base, SimAdjustments *set);

G_END_DECLS
