/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/workspaces.h"

#include "db/catalogue.h"
#include "db/tables.h"
#include "planner/base/units.h"
#include "planner/lower/lower.h"

#include <string.h>

/* Which rows to take, and where they go. */
typedef struct
{
  const char *architecture;
  guint cudnn; /* 0: any */
  PlanWorkspaces *rows;
} Reader;

/* Takes a row from its words; rows of another mask or another cuDNN are skipped. */
static gboolean
take (Reader *self, PlanWorkspace row, const char *mask, const char *format, const char *pass,
      GError **error)
{
  if (strcmp (mask, "causal") != 0 || (self->cudnn != 0 && row.version != self->cudnn))
    return TRUE;
  if (!plan_dtype_parse (format, "workspace", &row.dtype, error)
      || !plan_pass_parse (pass, &row.pass, error))
    return FALSE;
  plan_workspaces_add (self->rows, &row);
  return TRUE;
}

/* A missing catalogue is no error here: looking up GEMMs reports it. */
static gboolean
read_shipped (Reader *self, GError **error)
{
  g_autoptr (DbStore) store = db_catalogue_open (NULL);
  if (!store)
    return TRUE;
  g_autoptr (GArray) rows = db_catalogue_list_workspaces (store, self->architecture, error);
  for (guint i = 0; rows && i < rows->len; i++)
    {
      const DbAttentionWorkspace *from = &g_array_index (rows, DbAttentionWorkspace, i);
      const PlanWorkspace row
          = { .dims = { from->batch, from->seq, from->heads, from->kv_heads, from->head_dim },
              .version = (guint)from->cudnn,
              .bytes = (guint64)from->workspace_bytes };
      if (!take (self, row, from->mask, from->format, from->pass, error))
        return FALSE;
    }
  return rows != NULL;
}

static gint64
number_of (const DbTable *rows, guint row, const char *column)
{
  return g_ascii_strtoll (db_table_cell_named (rows, row, column), NULL, 10);
}

static gboolean
read_stored (Reader *self, const char *db, GError **error)
{
  static const char *const dims[PLAN_N_WORKSPACE_DIMS]
      = { "batch", "seq", "heads", "kv_heads", "head_dim" };
  g_autoptr (DbStore) store = NULL;
  if (!db_store_open_if_any (db, &store, error))
    return FALSE;
  if (!store)
    return TRUE;
  g_autoptr (DbTable) rows = db_store_read_table (store, DB_KIND_WORKSPACES, NULL, error);
  for (guint i = 0; rows && i < db_table_n_rows (rows); i++)
    {
      PlanWorkspace row = { .version = (guint)number_of (rows, i, "cudnn"),
                            .bytes = (guint64)number_of (rows, i, "workspace_bytes") };
      for (guint d = 0; d < PLAN_N_WORKSPACE_DIMS; d++)
        row.dims[d] = number_of (rows, i, dims[d]);
      if (strcmp (db_table_cell_named (rows, i, "architecture"), self->architecture) == 0
          && !take (self, row, db_table_cell_named (rows, i, "mask"),
                    db_table_cell_named (rows, i, "format"), db_table_cell_named (rows, i, "pass"),
                    error))
        return FALSE;
    }
  return rows != NULL;
}

/* Reads the rows. Those of the store come last, so that they win among equal versions. */
static PlanWorkspaces *
read_rows (const AdviseInput *input, const char *architecture, GError **error)
{
  g_autoptr (PlanWorkspaces) rows = plan_workspaces_new ();
  Reader reader = { .architecture = architecture, .cudnn = input->cudnn, .rows = rows };
  if (!read_shipped (&reader, error)
      || (!input->is_of_many && !read_stored (&reader, input->db, error)))
    return NULL;
  return plan_workspaces_n_rows (rows) > 0 ? g_steal_pointer (&rows) : NULL;
}

const PlanWorkspaces *
advise_workspaces (const AdviseInput *input)
{
  static GMutex mutex;
  static GHashTable *known = NULL;
  if (input->cluster->kind != PLAN_DEVICE_GPU)
    return NULL;
  if (input->asked)
    return input->asked;
  g_autofree char *architecture
      = plan_cluster_print_fact (input->cluster, PLAN_FACT_COMPUTE_CAPABILITY);
  if (!architecture)
    return NULL;
  g_autofree char *key = g_strdup_printf ("%s\n%u\n%d\n%s", architecture, input->cudnn,
                                          input->is_of_many, input->db ? input->db : "");
  gpointer found;
  g_mutex_lock (&mutex);
  if (!known)
    known = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  if (!g_hash_table_lookup_extended (known, key, NULL, &found))
    {
      g_autoptr (GError) error = NULL;
      found = read_rows (input, architecture, &error);
      if (error)
        g_warning ("what cuDNN said of attention is not used: %s", error->message);
      g_hash_table_insert (known, g_steal_pointer (&key), found);
    }
  g_mutex_unlock (&mutex);
  return found;
}

PlanCase *
advise_case (const AdviseInput *input, const Plan *plan, GError **error)
{
  return plan_case_new (input->model, input->cluster, plan, advise_workspaces (input), error);
}

/* The workspace of attention's backward pass; NULL: there is no such pass, or it is on processors.
 */
static const PlanBuffer *
find_work (const PlanSchedule *schedule)
{
  for (guint i = 0; i < plan_schedule_n_buffers (schedule); i++)
    if (strcmp (plan_schedule_buffer (schedule, i)->name, "attention_work") == 0)
      return plan_schedule_buffer (schedule, i);
  return NULL;
}

char *
advise_describe_workspace (const PlanCase *of, const PlanSchedule *schedule)
{
  const PlanBuffer *work = find_work (schedule);
  const gboolean is_deterministic = of->plan.value[PLAN_DETERMINISTIC] == PLAN_DETERMINISTIC_ON;
  if (!work || of->plan.value[PLAN_TASK] == PLAN_TASK_EVAL)
    return NULL;
  const PlanWorkspace *said = plan_lower_find_workspace (
      of, is_deterministic ? PLAN_PASS_DETERMINISTIC : PLAN_PASS_BACKWARD);
  g_autofree char *size = plan_units_format_size (plan_dtype_bytes (work->dtype, work->elements));
  if (!said && plan_lower_attends_by_batches (of))
    return g_strdup_printf ("attention backwards works in %s, by batched GEMMs: cuDNN has no graph "
                            "for it",
                            size);
  if (!said && of->cluster->rocm == PLAN_ANSWER_YES)
    return g_strdup_printf ("attention backwards is taken to work in %s, as cuDNN would", size);
  if (!said)
    return g_strdup_printf ("attention backwards works in %s by rule: of this shape nothing "
                            "is stored that cuDNN said",
                            size);
  g_autofree char *version = plan_workspace_print_version (said->version);
  return g_strdup_printf ("attention backwards works in %s, as cuDNN %s says", size, version);
}
