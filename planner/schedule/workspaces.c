/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/workspaces.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

struct _PlanWorkspaces
{
  GHashTable *rows; /* PlanWorkspace, each its own key */
};

static const char *const pass_names[PLAN_N_PASSES]
    = { [PLAN_PASS_FORWARD] = "forward",
        [PLAN_PASS_BACKWARD] = "backward",
        [PLAN_PASS_DETERMINISTIC] = "deterministic" };

const char *
plan_pass_name (PlanPass pass)
{
  return pass_names[pass];
}

gboolean
plan_pass_parse (const char *name, PlanPass *out_pass, GError **error)
{
  for (PlanPass pass = 0; pass < PLAN_N_PASSES; pass++)
    if (strcmp (name, pass_names[pass]) == 0)
      {
        *out_pass = pass;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (name);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "pass: %s is not one of forward, backward, deterministic", shown);
  return FALSE;
}

char *
plan_workspace_print_version (guint version)
{
  return g_strdup_printf ("%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
}

static guint
hash (gconstpointer data)
{
  const PlanWorkspace *row = data;
  guint value = (guint)row->dtype * PLAN_N_PASSES + row->pass;
  for (guint d = 0; d < PLAN_N_WORKSPACE_DIMS; d++)
    value = value * 31 + g_int64_hash (&row->dims[d]);
  return value;
}

static gboolean
are_of_one_shape (gconstpointer one, gconstpointer other)
{
  const PlanWorkspace *a = one, *b = other;
  return a->dtype == b->dtype && a->pass == b->pass
         && memcmp (a->dims, b->dims, sizeof a->dims) == 0;
}

PlanWorkspaces *
plan_workspaces_new (void)
{
  PlanWorkspaces *self = g_new0 (PlanWorkspaces, 1);
  self->rows = g_hash_table_new_full (hash, are_of_one_shape, g_free, NULL);
  return self;
}

void
plan_workspaces_free (PlanWorkspaces *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->rows);
  g_free (self);
}

void
plan_workspaces_add (PlanWorkspaces *self, const PlanWorkspace *row)
{
  const PlanWorkspace *known = g_hash_table_lookup (self->rows, row);
  if (!known || known->version <= row->version)
    g_hash_table_add (self->rows, g_memdup2 (row, sizeof *row));
}

guint
plan_workspaces_n_rows (const PlanWorkspaces *self)
{
  return g_hash_table_size (self->rows);
}

const PlanWorkspace *
plan_workspaces_find (const PlanWorkspaces *self, const gint64 *dims, PlanDtype dtype,
                      PlanPass pass)
{
  PlanWorkspace key = { .dtype = dtype, .pass = pass };
  memcpy (key.dims, dims, sizeof key.dims);
  return self ? g_hash_table_lookup (self->rows, &key) : NULL;
}
