/* Fits what measured runs teach about the errors of predictions: all of a set except its
 * factors. */
#pragma once
#include "advise/validate.h"
#include "sim/fit/calibrate.h"
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

/* Finds the errors for runs that differ in one property from all that were fitted to: the runs
 * (AdviseRun, one of each row) with each GPU, each stack and each mode are left out in turn. */
gboolean advise_uncertainty_fit_distances (const GPtrArray *runs, const SimObservation *rows,
                                           const SimAdjustments *base, SimAdjustments *set,
                                           GError **error);

/* Numbers parts by name, from 1: the same for the same name. */
guint advise_part_of (const char *name, GHashTable *names);

G_END_DECLS
