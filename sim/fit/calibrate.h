/* SimCalibration: the factors that bring predicted step times to measured ones.
 *
 * Every factor has a prior: 1, or what an earlier set says, with a width that says how far the
 * physics behind it may reasonably be off. So a GPU with three runs moves a little, and one with a
 * hundred as far as they ask. Runs that nothing explains count less than in proportion. */
#pragma once
#include "sim/cost/adjust.h"
#include "sim/cost/cost.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

/* One measured run. What it points to must outlive the calibration. */
typedef struct
{
  SimCostInput input; /* but for its params: the device's default is adjusted; of a pipeline, but
                         for the schedule */
  SimMeeting stages;  /* of a pipeline; else empty */
  const char *gpu, *stack;  /* scopes it belongs to */
  const char *site;         /* NULL: not known */
  double step_ns, weight;   /* measured; repeats of one configuration share a weight of 1 */
  guint part;               /* of n_parts: is predicted by what was fitted to all others */
  double before_ns;         /* set: predicted by the set it began with, */
  double after_ns, left_ns; /* by the new one, and by one that did not see its part */
} SimObservation;

typedef struct
{
  const char *id;             /* of the set to be made */
  const SimAdjustments *base; /* NULL: the defaults. Else only what is common to a GPU and a stack
                                 is fitted, on top of it: everyone else's predictions stay */
  guint n_parts;              /* of the cross-validation; below 2: none */
  guint n_threads;
  void (*progress) (guint evaluations, void *user); /* may be NULL */
  void *user;
} SimCalibration;

/* INVALID where there is nothing to fit. */
SimAdjustments *sim_calibrate (const SimCalibration *self, SimObservation *rows, guint n,
                               GError **error);

G_END_DECLS
