/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost/measurements.h"

#include <stdlib.h>
#include <string.h>

/* Rows further away than this in any dimension say nothing about a shape. */
#define REACH_OCTAVES 2.0

#define NEIGHBOURS 4

/* log2 of m, n and k. */
typedef struct
{
  double of[3];
} Size;

struct _SimMeasurements
{
  guint n;
  SimProduct *products; /* sorted by layout, formats, accumulation, then m, n, k */
  Size *sizes;          /* of each product */
};

/* Orders GEMMs by layout and input format, within which rates are interpolated. */
static gint64
family_order (const SimProduct *a, const SimProduct *b)
{
  return a->layout != b->layout ? a->layout - b->layout : (gint64)a->in - (gint64)b->in;
}

static gint64
size_order (const SimProduct *a, const SimProduct *b)
{
  return a->m != b->m ? a->m - b->m : a->n != b->n ? a->n - b->n : a->k - b->k;
}

static int
order (const void *left, const void *right)
{
  const SimProduct *a = left, *b = right;
  const gint64 by[] = { family_order (a, b), (gint64)a->out - (gint64)b->out,
                        (gint64)a->accumulates - (gint64)b->accumulates, size_order (a, b) };
  for (guint i = 0; i < G_N_ELEMENTS (by); i++)
    if (by[i] != 0)
      return by[i] < 0 ? -1 : 1;
  return a->flops_per_s < b->flops_per_s ? -1 : a->flops_per_s > b->flops_per_s;
}

/* Binary logarithm, interpolated linearly between powers of two: monotone, and the same on every
 * machine. */
static double
octaves (gint64 value)
{
  gint64 power = 1;
  double whole = 0;
  for (; power <= value / 2; power *= 2)
    whole++;
  return whole + (double)(value - power) / (double)power;
}

static Size
size_of (const SimProduct *product)
{
  return (Size){ { octaves (product->m), octaves (product->n), octaves (product->k) } };
}

SimMeasurements *
sim_measurements_new (const SimProduct *products, guint n)
{
  SimMeasurements *self = g_new (SimMeasurements, 1);
  self->n = n;
  self->products = g_memdup2 (products, n * sizeof *products);
  if (n > 0)
    qsort (self->products, n, sizeof *self->products, order);
  self->sizes = g_new (Size, n);
  for (guint i = 0; i < n; i++)
    self->sizes[i] = size_of (&self->products[i]);
  return self;
}

void
sim_measurements_free (SimMeasurements *self)
{
  if (!self)
    return;
  g_free (self->products);
  g_free (self->sizes);
  g_free (self);
}

guint
sim_measurements_n (const SimMeasurements *self)
{
  return self->n;
}

/* The first row that is not before `product`, whatever its rate. */
static guint
lower_bound (const SimMeasurements *self, const SimProduct *product)
{
  SimProduct key = *product;
  guint low = 0, high = self->n;
  key.flops_per_s = 0;
  while (low < high)
    {
      const guint middle = low + (high - low) / 2;
      if (order (&self->products[middle], &key) < 0)
        low = middle + 1;
      else
        high = middle;
    }
  return low;
}

gboolean
sim_measurements_find (const SimMeasurements *self, const SimProduct *product,
                       double *out_flops_per_s)
{
  double inverse = 0;
  guint n = 0;
  for (guint i = lower_bound (self, product); i < self->n; i++, n++)
    {
      SimProduct same = self->products[i];
      same.flops_per_s = product->flops_per_s;
      if (order (&same, product) != 0)
        break;
      inverse += 1 / self->products[i].flops_per_s;
    }
  if (n == 0)
    return FALSE;
  *out_flops_per_s = n / inverse; /* the rate of the mean time */
  return TRUE;
}

typedef struct
{
  double squared, flops_per_s;
} Neighbour;

/* Inserts into the list of the nearest; ties go to the earlier row. */
static void
add_neighbour (Neighbour *nearest, guint *n, Neighbour found)
{
  guint at = *n;
  while (at > 0 && nearest[at - 1].squared > found.squared)
    at--;
  if (at == NEIGHBOURS)
    return;
  *n = MIN (*n + 1, NEIGHBOURS);
  for (guint i = *n - 1; i > at; i--)
    nearest[i] = nearest[i - 1];
  nearest[at] = found;
}

gboolean
sim_measurements_interpolate (const SimMeasurements *self, const SimProduct *product,
                              double *out_flops_per_s)
{
  const Size at = size_of (product);
  const SimProduct first = { .layout = product->layout, .in = product->in };
  gboolean below[3] = { FALSE }, above[3] = { FALSE };
  Neighbour nearest[NEIGHBOURS];
  guint n = 0;
  for (guint i = lower_bound (self, &first);
       i < self->n && family_order (&self->products[i], product) == 0; i++)
    {
      Neighbour found = { .flops_per_s = self->products[i].flops_per_s };
      gboolean is_near = TRUE;
      for (guint d = 0; d < 3; d++)
        {
          const double away = self->sizes[i].of[d] - at.of[d];
          is_near = is_near && ABS (away) <= REACH_OCTAVES;
          found.squared += away * away;
        }
      if (!is_near)
        continue;
      for (guint d = 0; d < 3; d++)
        {
          below[d] = below[d] || self->sizes[i].of[d] <= at.of[d];
          above[d] = above[d] || self->sizes[i].of[d] >= at.of[d];
        }
      add_neighbour (nearest, &n, found);
    }
  for (guint d = 0; d < 3; d++)
    if (!below[d] || !above[d])
      return FALSE;
  double weights = 0, sum = 0;
  for (guint i = 0; i < n; i++)
    {
      const double weight = 1 / (nearest[i].squared + 1e-6); /* an equal size: no 1 / 0 */
      weights += weight;
      sum += weight * nearest[i].flops_per_s;
    }
  *out_flops_per_s = sum / weights;
  return TRUE;
}
