/* SimMeasurements: products that somebody timed on the device in question, sorted to be found.
 *
 * A shape that was timed takes what it took. One that lies among timed shapes takes the share of
 * the device's rate that its nearest neighbours reached. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* out[m,n] = a * b, or added to what is there; layouts are the op list's. */
typedef struct
{
  gint64 m, n, k, layout;
  PlanDtype in, out;
  gboolean accumulates;
  double flops_per_s;
} SimProduct;

typedef struct _SimMeasurements SimMeasurements;

/* Copies the rows; order does not matter. */
SimMeasurements *sim_measurements_new (const SimProduct *products, guint n);
void sim_measurements_free (SimMeasurements *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimMeasurements, sim_measurements_free)

guint sim_measurements_n (const SimMeasurements *self);

/* The mean of the rows that are alike in everything but the rate; FALSE when there is none. */
gboolean sim_measurements_find (const SimMeasurements *self, const SimProduct *product,
                                double *out_flops_per_s);

/* Between rows of the same layout and input format. Only rows within two octaves of the shape in
 * each of m, n and k count; among them must be one at or below it and one at or above it in each.
 * The four nearest, in octaves, decide, weighted by the inverse of the squared distance. */
gboolean sim_measurements_interpolate (const SimMeasurements *self, const SimProduct *product,
                                       double *out_flops_per_s);

G_END_DECLS
