/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fuzz/accepted.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEPT 256

static guint64 n_inputs, n_accepted;
static GBytes *announced, *kept[KEPT];
static guint n_kept;

/* Not by stdio, whose streams a fuzzer may have replaced to silence what it tests. */
static void
print (void)
{
  dprintf (STDERR_FILENO, "# accepted: %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT "\n",
           n_accepted, n_inputs);
}

void
fuzz_count (gboolean is_accepted)
{
  if (n_inputs == 0)
    atexit (print);
  n_inputs++;
  n_accepted += is_accepted ? 1 : 0;
  if (is_accepted && announced)
    {
      GBytes **place = &kept[n_kept++ % KEPT];
      g_clear_pointer (place, g_bytes_unref);
      *place = g_steal_pointer (&announced);
    }
}

void
fuzz_announce (gconstpointer data, gsize size)
{
  g_clear_pointer (&announced, g_bytes_unref);
  announced = g_bytes_new (data, size);
}

GBytes *
fuzz_accepted (guint which)
{
  return n_kept > 0 ? kept[which % MIN (n_kept, KEPT)] : NULL;
}
