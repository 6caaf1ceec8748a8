/* Spreads: how far off runs were predicted that had been left out of a fit, by GPU and stack; and
 * how much further off those of a source are of which none was seen. */
#pragma once
#include "sim/fit/calibrate.h"
G_BEGIN_DECLS

/* Adds to the set what these rows tell, and what the request's base knows of other GPUs and
 * stacks. */
void sim_spreads_add (SimAdjustments *set, const SimCalibration *request,
                      const SimObservation *rows, guint n);

G_END_DECLS
