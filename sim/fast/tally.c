/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/tally.h"

#include <string.h>

void
sim_tally_clear (SimTally *self)
{
  g_clear_pointer (&self->ns, g_array_unref);
  for (guint i = 0; i < SIM_LEVELS; i++)
    g_clear_pointer (&self->before[i], g_array_unref);
}

void
sim_tally_begin (SimTally *self, guint n_nodes)
{
  if (!self->ns)
    {
      self->ns = g_array_new (FALSE, TRUE, sizeof (gint64));
      for (guint i = 0; i < SIM_LEVELS; i++)
        self->before[i] = g_array_new (FALSE, TRUE, sizeof (gint64));
    }
  g_array_set_size (self->ns, 0);
  g_array_set_size (self->ns, n_nodes);
  for (guint i = 0; i < SIM_LEVELS; i++)
    g_array_set_size (self->before[i], n_nodes);
}

void
sim_tally_begin_iteration (SimTally *self, guint level)
{
  if (self->ns->len > 0)
    memcpy (self->before[level]->data, self->ns->data, self->ns->len * sizeof (gint64));
}

void
sim_tally_repeat (SimTally *self, guint level, gint64 count)
{
  gint64 *const ns = (gint64 *)(gpointer)self->ns->data;
  const gint64 *const before = (const gint64 *)(gpointer)self->before[level]->data;
  for (guint i = 0; i < self->ns->len; i++)
    ns[i] += count * (ns[i] - before[i]);
}
