/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store-private.h"

#include "planner/base/error.h"

/* The largest number that JSON represents exactly. */
#define LAST_NUMBER "9007199254740991"

/* Rules that the schema cannot express. Each query names the rows that break a rule. */
static const struct
{
  const char *offenders, *rule;
} rules[] = {
  { "SELECT 'plan ' || id FROM plan WHERE id > (SELECT seq FROM sqlite_sequence WHERE name = "
    "'plan')",
    "has a number that could be given again" },
  { "SELECT 'run ' || id FROM run WHERE id > (SELECT seq FROM sqlite_sequence WHERE name = 'run')",
    "has a number that could be given again" },
  { "SELECT 'the last number of a ' || name FROM sqlite_sequence WHERE seq > " LAST_NUMBER,
    "is beyond " LAST_NUMBER ", which leaves none to give" },
  { "SELECT 'run ' || id FROM run WHERE"
    " created NOT GLOB "
    "'[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z'",
    "was not made at a time in UTC" },
  { "SELECT 'step ' || step || ' of run ' || run_id FROM run_step JOIN run ON run.id = run_id"
    " WHERE step > steps",
    "is beyond the steps asked for" },
  { "SELECT 'trace ' || id || ' of run ' || run_id FROM trace WHERE step_ns <> compute_ns"
    " + exposed_tensor_ns + exposed_gather_ns + exposed_reduce_ns + exposed_copy_ns + host_ns + "
    "idle_ns",
    "takes another time than its parts" },
  { "SELECT 'trace ' || trace_id FROM trace_op GROUP BY trace_id"
    " HAVING min (position) <> 0 OR max (position) <> count (*) - 1",
    "lacks ops" },
  { "SELECT 'trace ' || trace_id FROM trace_sample GROUP BY trace_id"
    " HAVING min (position) <> 0 OR max (position) <> count (*) - 1",
    "lacks samples of memory" },
  { "SELECT 'op ' || position || ' of trace ' || trace_id FROM trace_op WHERE start_ns > end_ns",
    "ends before it starts" },
  { "SELECT 'parameter set ' || id FROM param_set WHERE NOT EXISTS"
    " (SELECT 1 FROM param_set_row WHERE param_set_id = param_set.id)",
    "does not say what it was fitted to" },
  { "SELECT 'parameter set ' || param_set_id FROM param_set_row JOIN run_measurement"
    " ON run_measurement.id = run_measurement_id WHERE use = 'report'",
    "was fitted to a row for reporting" },
};

G_GNUC_PRINTF (2, 3)
static void
add_fault (GPtrArray *faults, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_ptr_array_add (faults, g_strdup_vprintf (format, args));
  va_end (args);
}

static gboolean
check_rules (DbStore *self, GPtrArray *faults, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (rules); i++)
    {
      g_auto (DbQuery) find = { 0 };

      if (!db_query_prepare (&find, self, rules[i].offenders, error))
        return FALSE;
      while (db_query_next (&find))
        {
          g_autofree char *offender = db_query_take_text (&find);

          add_fault (faults, "%s %s", offender, rules[i].rule);
        }
      if (!db_query_end (&find, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
check_references (DbStore *self, GPtrArray *faults, GError **error)
{
  g_auto (DbQuery) find = { 0 };

  if (!db_query_prepare (&find, self,
                         "SELECT \"table\", rowid, parent FROM pragma_foreign_key_check", error))
    return FALSE;
  while (db_query_next (&find))
    {
      g_autofree char *table = db_query_take_text (&find);
      const gint64 row = db_query_take_int (&find);
      g_autofree char *parent = db_query_take_text (&find);

      add_fault (faults, "table %s, row %" G_GINT64_FORMAT ": its %s is not there", table, row,
                 parent);
    }
  return db_query_end (&find, error);
}

static gboolean
check_file (DbStore *self, GPtrArray *faults, GError **error)
{
  g_auto (DbQuery) find = { 0 };

  if (!db_query_prepare (&find, self, "SELECT integrity_check FROM pragma_integrity_check", error))
    return FALSE;
  while (db_query_next (&find))
    {
      g_autofree char *fault = db_query_take_text (&find);

      if (g_strcmp0 (fault, "ok") != 0)
        add_fault (faults, "damaged: %s", fault);
    }
  return db_query_end (&find, error);
}

/* SQL without comments, quotes and layout, for comparison: for example, a migrated table's name is
 * quoted. */
static char *
plain_sql (const char *sql)
{
  g_auto (GStrv) lines = g_strsplit (sql, "\n", -1);
  g_auto (GStrv) words = NULL;
  g_autofree char *text = NULL;
  GString *plain = g_string_new (NULL);

  for (char **l = lines; *l; l++)
    {
      char *comment = strstr (*l, "--");

      if (comment)
        *comment = '\0';
    }
  text = g_strjoinv (" ", lines);
  words = g_strsplit_set (text, " \"", -1);
  for (char **w = words; *w; w++)
    if (**w)
      g_string_append_printf (plain, "%s ", *w);
  return g_string_free (plain, FALSE);
}

/* The schema of the store: "table run" -> the SQL that made it. */
static GHashTable *
read_schema (DbStore *self, GError **error)
{
  g_autoptr (GHashTable) schema = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  g_auto (DbQuery) read = { 0 };

  if (!db_query_prepare (&read, self,
                         "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL",
                         error))
    return NULL;
  while (db_query_next (&read))
    {
      char *name = db_query_take_text (&read);
      g_autofree char *sql = db_query_take_text (&read);

      g_hash_table_insert (schema, name, plain_sql (sql));
    }
  return db_query_end (&read, error) ? g_steal_pointer (&schema) : NULL;
}

static void
compare_schemas (GHashTable *found, GHashTable *expected, GPtrArray *faults)
{
  g_autoptr (GList) names = g_list_sort (g_hash_table_get_keys (expected), (GCompareFunc)strcmp);
  g_autoptr (GList) others = g_list_sort (g_hash_table_get_keys (found), (GCompareFunc)strcmp);

  for (GList *n = names; n; n = n->next)
    {
      const char *sql = g_hash_table_lookup (found, n->data);

      if (!sql)
        add_fault (faults, "%s is missing", (const char *)n->data);
      else if (strcmp (sql, g_hash_table_lookup (expected, n->data)) != 0)
        add_fault (faults, "%s is not as this version makes it", (const char *)n->data);
    }
  for (GList *n = others; n; n = n->next)
    if (!g_hash_table_contains (expected, n->data))
      add_fault (faults, "%s is none of this program's", (const char *)n->data);
}

static gboolean
check_schema (DbStore *self, GPtrArray *faults, GError **error)
{
  g_autoptr (DbStore) fresh = db_store_new_empty (self->path, error);
  g_autoptr (GHashTable) expected
      = fresh && db_store_migrate (fresh, error) ? read_schema (fresh, error) : NULL;
  g_autoptr (GHashTable) found = expected ? read_schema (self, error) : NULL;

  if (!found)
    return FALSE;
  compare_schemas (found, expected, faults);
  return TRUE;
}

gboolean
db_store_check_rows (DbStore *self, GError **error)
{
  g_autoptr (GPtrArray) faults = g_ptr_array_new_with_free_func (g_free);

  if (!check_references (self, faults, error) || !check_rules (self, faults, error))
    return FALSE;
  if (faults->len == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: cannot %s: %s", self->path, self->doing,
               (const char *)g_ptr_array_index (faults, 0));
  return FALSE;
}

GPtrArray *
db_store_list_faults (DbStore *self, GError **error)
{
  g_autoptr (GPtrArray) faults = g_ptr_array_new_with_free_func (g_free);

  db_store_doing (self, "check the store");
  if (!check_file (self, faults, error) || !check_schema (self, faults, error))
    return NULL;
  /* with faults in the file or schema, these checks would only fail as well */
  if (faults->len == 0
      && (!check_references (self, faults, error) || !check_rules (self, faults, error)))
    return NULL;
  return g_steal_pointer (&faults);
}

/* Repairs a counter only where the numbers in use leave some to give. */
gboolean
db_store_repair_numbers (DbStore *self, guint *out_n, GError **error)
{
  static const char *const lower[] = {
    "UPDATE sqlite_sequence SET seq = (SELECT ifnull (max (id), 0) FROM plan)"
    " WHERE name = 'plan' AND seq > " LAST_NUMBER,
    "UPDATE sqlite_sequence SET seq = (SELECT ifnull (max (id), 0) FROM run)"
    " WHERE name = 'run' AND seq > " LAST_NUMBER,
    "UPDATE sqlite_sequence SET seq = (SELECT ifnull (max (id), 0) FROM query)"
    " WHERE name = 'query' AND seq > " LAST_NUMBER,
  };
  g_auto (DbTransaction) transaction = { 0 };
  db_store_doing (self, "repair the store");
  if (!db_transaction_begin (&transaction, self, error))
    return FALSE;
  *out_n = 0;
  for (guint i = 0; i < G_N_ELEMENTS (lower); i++)
    {
      if (!db_store_exec (self, lower[i], error))
        return FALSE;
      *out_n += (guint)sqlite3_changes (self->db);
    }
  return db_transaction_commit (&transaction, error);
}

gboolean
db_store_debug_check (DbStore *self, GError **error)
{
  g_autoptr (GPtrArray) faults = NULL;

  if (!g_getenv ("FSDPLAN_DEBUG_CHECK"))
    return TRUE;
  if (!(faults = db_store_list_faults (self, error)))
    return FALSE;
  if (faults->len == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "%s: %s", self->path,
               (const char *)g_ptr_array_index (faults, 0));
  return FALSE;
}
