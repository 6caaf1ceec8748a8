/* SimMeasurements: a table of GEMMs that were timed on this kind of device.
 *
 * A measured shape takes its measured time. A shape between measured ones reaches the rate of its
 * nearest neighbours. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* A GEMM: out[m,n] = a * b, or out += a * b; `layout` is the op list's. */
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

/* The mean over the rows that agree in everything but the rate. FALSE when there is none. */
gboolean sim_measurements_find (const SimMeasurements *self, const SimProduct *product,
                                double *out_flops_per_s);

/* Interpolates between rows of the same layout and input format. Only rows within two octaves
 * (factors of 4) of the shape in each of m, n and k count, and in each dimension some row must be
 * at or below the shape and some row at or above it. The result is the mean rate of the four
 * nearest, weighted by the inverse of their squared distance in octaves. FALSE where there are no
 * such rows. */
gboolean sim_measurements_interpolate (const SimMeasurements *self, const SimProduct *product,
                                       double *out_flops_per_s);

G_END_DECLS
