/* Spreads: the errors of predictions for runs that were left out of a fit, by GPU and stack; and
 * what is added to them for runs that have something in common which no run of the fit has, such as
 * their source. */
#pragma once
#include "sim/fit/calibrate.h"
G_BEGIN_DECLS

/* Adds to `set` the spreads found from the rows, those of the request's base for GPUs and stacks
 * without rows, and how much the offsets of sources vary. */
void sim_spreads_add (SimAdjustments *set, const SimCalibration *request,
                      const SimObservation *rows, guint n);

/* The common offset of runs that share something, such as their source, and were left out of a fit
 * together: the mean of the logarithms of predicted over measured time. The runs from which they
 * were predicted have offsets as well; `excess` is the factor by which these make the variance of
 * this offset larger. Begins as 0. */
typedef struct
{
  double weight, sum, squares, excess; /* weighted sums */
} SimOffset;

void sim_offset_add (SimOffset *self, const SimObservation *row, double predicted_ns,
                     double excess);

/* The error within which eight of ten such offsets lie. Each offset counts once, whatever the
 * number of its runs; `runs` is the number of offsets, and 0 where there are too few to tell. */
SimErrorRange sim_offset_range (const SimOffset *offsets, guint n);

/* Rounds to four decimals, which is all that is known of a factor, a spread or an error. */
double sim_spreads_rounded (double value);

G_END_DECLS
