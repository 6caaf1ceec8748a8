/* SimCalibration: finds the factors that bring predicted step times to measured ones.
 *
 * Every factor has a prior: it is 1, or the value of an earlier set, with a width that says how far
 * the physical effect may reasonably be off. So for a GPU with three runs the factors move little,
 * and for one with a hundred as far as the runs demand. The loss grows linearly for large
 * residuals, so that runs which nothing explains do not dominate. */
#pragma once
#include "sim/cost/adjust.h"
#include "sim/cost/cost.h"
#include "sim/meet.h"
#include <glib.h>
G_BEGIN_DECLS

/* A measured run. Everything that it points to must outlive the calibration. */
typedef struct
{
  SimCostInput input; /* has no params, since the fit adjusts the device's defaults; for a pipeline
                         it has no schedule either */
  SimPipeline stages; /* for a pipeline; otherwise empty */
  const char *gpu, *stack; /* scopes to which the run belongs */
  const char *site;        /* NULL: not known */
  double step_ns, weight;  /* measured time; repeats of one configuration share a weight of 1 */
  guint part; /* part of the cross-validation (of n_parts): predicted by a fit to all other parts */
  guint source;             /* who published it (of n_sources) */
  gboolean has_experts;     /* sources may be further off for models with experts */
  double before_ns;         /* result: time predicted by the base set */
  double after_ns;          /* result: time predicted by the new set */
  double without_part_ns;   /* the same, by the set fitted without the run's part */
  double without_source_ns; /* the same, by the set fitted without the run's source */
} SimObservation;

typedef struct
{
  const char *id;             /* of the new set */
  const SimAdjustments *base; /* set to start from; NULL: the defaults. Only factors of one GPU on
                                 one stack are fitted on top of it, so that predictions for other
                                 GPUs and stacks stay as they are */
  guint n_parts;              /* parts of the cross-validation; below 2: none */
  guint n_sources;            /* sources, each left out in turn, too; below 2: none is */
  guint n_threads;
  void (*progress) (guint evaluations, void *user); /* may be NULL */
  void *user;
} SimCalibration;

/* Fits the factors. INVALID where there is nothing to fit. */
SimAdjustments *sim_calibrate (const SimCalibration *self, SimObservation *rows, guint n,
                               GError **error);

G_END_DECLS
