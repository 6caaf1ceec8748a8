/* Spreads: how far off runs were predicted that had been left out of a fit, by GPU and stack; and
 * how much further off those are that all have something of which none was seen, such as a
 * source. */
#pragma once
#include "sim/fit/calibrate.h"
G_BEGIN_DECLS

/* Adds to the set what these rows tell, and what the request's base knows of other GPUs and
 * stacks. */
void sim_spreads_add (SimAdjustments *set, const SimCalibration *request,
                      const SimObservation *rows, guint n);

/* How far off the runs were that have something in common and were left out together, in logarithms
 * of predicted over measured time; `excess` is by how much their variance is larger because what
 * they were predicted from has offsets, too. Begins as 0. */
typedef struct
{
  double weight, sum, squares, excess; /* weighted sums */
} SimOffset;

void sim_offset_add (SimOffset *self, const SimObservation *row, double predicted_ns,
                     double excess);

/* The error within which eight of ten such offsets lie, each counting once, whatever the number of
 * its runs; `runs` is how many there are. 0 where there are too few to tell. */
SimErrorRange sim_offset_range (const SimOffset *offsets, guint n);

G_END_DECLS
