/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/tables.h"

#include "db/store-private.h"
#include "db/tables-private.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <math.h>
#include <string.h>

/* A column of a kind. In SQL, ?N is the Nth column of the row, in the order of the lists below. */
typedef struct
{
  const char *name;
  DbType type;
  const char *read;   /* expression that reads it, if not its name */
  const char *target; /* column that stores it, if it has another name; "": none */
  const char *value;  /* expression that is stored, if not the value itself */
  gboolean may_end;   /* it is set when a run ends */
} Column;

#define TEXT(name) \
  { \
    name, DB_TYPE_TEXT, NULL, NULL, NULL, FALSE \
  }
#define INT(name) \
  { \
    name, DB_TYPE_INT, NULL, NULL, NULL, FALSE \
  }
#define REAL(name) \
  { \
    name, DB_TYPE_REAL, NULL, NULL, NULL, FALSE \
  }
#define AMOUNT(name) \
  { \
    name, DB_TYPE_AMOUNT, NULL, NULL, NULL, FALSE \
  }

/* A row number that was never given in this store is kept, so that a store rebuilt from an export
 * is equal; otherwise SQLite gives the next one. */
#define OWN_ID(table) \
  { \
    "id", DB_TYPE_INT, #table ".id", "id", \
        "CASE WHEN ?1 > ifnull ((SELECT seq FROM sqlite_sequence WHERE name = '" #table "'), 0)" \
        " THEN ?1 END", \
        FALSE \
  }

static const Column cluster_columns[]
    = { TEXT ("name"), TEXT ("text"), TEXT ("source"), TEXT ("created") };

static const Column plan_columns[] = {
  OWN_ID (plan),       { "plan_hash", DB_TYPE_TEXT, "hash", "hash", NULL, FALSE },
  TEXT ("model_text"), TEXT ("cluster_text"),
  TEXT ("plan_text"),
};

#define SAME_PLAN "hash = ?10 AND model_text = ?11 AND cluster_text = ?12 AND plan_text = ?13"

static const Column run_columns[] = {
  OWN_ID (run),
  TEXT ("uid"),
  TEXT ("created"),
  TEXT ("program_version"),
  TEXT ("backend"),
  TEXT ("comm"),
  TEXT ("device"),
  TEXT ("host"),
  INT ("pid"),
  { "plan_hash", DB_TYPE_TEXT, "hash", "", NULL, FALSE },
  { "model_text", DB_TYPE_TEXT, NULL, "", NULL, FALSE },
  { "cluster_text", DB_TYPE_TEXT, NULL, "", NULL, FALSE },
  { "plan_text", DB_TYPE_TEXT, NULL, "plan_id", "(SELECT id FROM plan WHERE " SAME_PLAN ")",
    FALSE },
  TEXT ("schedule_hash"),
  INT ("ranks"),
  INT ("steps"),
  INT ("seed"),
  TEXT ("data"),
  TEXT ("settings"),
  TEXT ("params_id"),
  { "state", DB_TYPE_TEXT, NULL, NULL, NULL, TRUE },
  { "message", DB_TYPE_TEXT, NULL, NULL, NULL, TRUE },
  { "predicted_step_ns", DB_TYPE_INT, NULL, NULL, NULL, TRUE },
  { "measured_step_ns", DB_TYPE_INT, NULL, NULL, NULL, TRUE },
};

static const Column step_columns[] = {
  { "run", DB_TYPE_TEXT, "uid", "run_id", "(SELECT id FROM run WHERE uid = ?1)", FALSE },
  INT ("step"),
  REAL ("loss"),
  REAL ("grad_norm"),
  INT ("step_ns"),
  REAL ("eval_loss"),
};

static const Column query_columns[] = {
  OWN_ID (query),           TEXT ("uid"),      TEXT ("created"),
  TEXT ("program_version"), TEXT ("question"), TEXT ("params_id"),
};

#define SAME_ANSWER "hash = ?3 AND model_text = ?4 AND cluster_text = ?5 AND plan_text = ?6"

static const Column answer_columns[] = {
  { "query", DB_TYPE_TEXT, "uid", "query_id", "(SELECT id FROM query WHERE uid = ?1)", FALSE },
  INT ("place"),
  { "plan_hash", DB_TYPE_TEXT, "hash", "", NULL, FALSE },
  { "model_text", DB_TYPE_TEXT, NULL, "", NULL, FALSE },
  { "cluster_text", DB_TYPE_TEXT, NULL, "", NULL, FALSE },
  { "plan_text", DB_TYPE_TEXT, NULL, "plan_id", "(SELECT id FROM plan WHERE " SAME_ANSWER ")",
    FALSE },
  INT ("step_ns"),
  INT ("device_bytes"),
};

static const Column measurement_columns[] = {
  OWN_ID (run_measurement),
  TEXT ("created"),
  TEXT ("source"),
  TEXT ("row_id"),
  TEXT ("row_group"),
  TEXT ("use"),
  TEXT ("quality"),
  TEXT ("stack"),
  TEXT ("stack_date"),
  TEXT ("model_text"),
  TEXT ("cluster_text"),
  TEXT ("gpu"),
  INT ("gpus"),
  INT ("nodes"),
  TEXT ("plan_text"),
  AMOUNT ("step_ms"),
  AMOUNT ("tokens_per_s_per_gpu"),
  AMOUNT ("allocated_mib"),
  AMOUNT ("max_allocated_mib"),
  AMOUNT ("reserved_mib"),
  AMOUNT ("device_mib"),
  TEXT ("oom"),
  TEXT ("time_ok"),
  TEXT ("memory_ok"),
  TEXT ("notes"),
};

static const Column op_columns[] = {
  OWN_ID (op_measurement), TEXT ("uid"),      TEXT ("created"), TEXT ("program_version"),
  TEXT ("host"),           TEXT ("machine"),  TEXT ("backend"), TEXT ("comm"),
  INT ("ranks"),           TEXT ("op"),       TEXT ("shape"),   TEXT ("format"),
  INT ("median_ns"),       INT ("spread_ns"), INT ("samples"),
};

static const Column workspace_columns[] = {
  OWN_ID (attention_workspace),
  TEXT ("created"),
  TEXT ("program_version"),
  INT ("cudnn"),
  TEXT ("architecture"),
  TEXT ("pass"),
  TEXT ("mask"),
  TEXT ("format"),
  INT ("batch"),
  INT ("seq"),
  INT ("heads"),
  INT ("kv_heads"),
  INT ("head_dim"),
  INT ("workspace_bytes"),
};

static const Column param_columns[] = {
  TEXT ("id"),   TEXT ("created"),    TEXT ("program_version"),
  TEXT ("text"), TEXT ("validation"), REAL ("error_pct"),
};

/* Exactly one of run, measurement (source and row_id) and op is set. */
static const Column fitted_columns[] = {
  { "params", DB_TYPE_TEXT, "param_set_id", "param_set_id", NULL, FALSE },
  { "run", DB_TYPE_TEXT, "run.uid", "run_id", "(SELECT id FROM run WHERE uid = ?2)", FALSE },
  { "source", DB_TYPE_TEXT, NULL, "", NULL, FALSE },
  { "row_id", DB_TYPE_TEXT, NULL, "run_measurement_id",
    "(SELECT id FROM run_measurement WHERE source = ?3 AND row_id = ?4)", FALSE },
  { "op", DB_TYPE_TEXT, "op_measurement.uid", "op_measurement_id",
    "(SELECT id FROM op_measurement WHERE uid = ?5)", FALSE },
};

static const struct
{
  const char *name, *one;
  const Column *columns;
  guint n_columns;
  const char *table, *from;
  const char *same;    /* condition that finds an equal row */
  const char *prepare; /* SQL run before a row is added */
  const char *end;     /* SQL that ends a stored run */
  const char *tidy; /* SQL run after rows were deleted; NULL: such rows are deleted with others */
  const char *missing; /* message when something that a row refers to does not exist */
} kinds[DB_N_KINDS] = {
#define COLUMNS(array) array, G_N_ELEMENTS (array)
  [DB_KIND_CLUSTERS] = { "clusters", "cluster", COLUMNS (cluster_columns), "cluster", "cluster",
                         "name = ?1", NULL, NULL, "", NULL },
  [DB_KIND_PLANS] = { "plans", "plan", COLUMNS (plan_columns), "plan", "plan",
                      "hash = ?2 AND model_text = ?3 AND cluster_text = ?4 AND plan_text = ?5",
                      NULL, NULL, "", NULL },
  [DB_KIND_RUNS]
  = { "runs", "run", COLUMNS (run_columns), "run", "run JOIN plan ON plan.id = plan_id", "uid = ?2",
      "INSERT INTO plan (hash, model_text, cluster_text, plan_text) SELECT ?10, ?11, ?12, ?13"
      " WHERE NOT EXISTS (SELECT 1 FROM plan WHERE " SAME_PLAN ")",
      "UPDATE run SET state = ?21, message = ?22, predicted_step_ns = ?23, measured_step_ns = ?24"
      " WHERE uid = ?2 AND state = 'running' AND ?21 <> 'running'",
      "", NULL },
  [DB_KIND_STEPS]
  = { "steps", "step", COLUMNS (step_columns), "run_step", "run_step JOIN run ON run.id = run_id",
      "uid = ?1 AND step = ?2", NULL, NULL, NULL, "its run is not in the store" },
  [DB_KIND_QUERIES] = { "queries", "query", COLUMNS (query_columns), "query", "query", "uid = ?2",
                        NULL, NULL, "", NULL },
  [DB_KIND_ANSWERS]
  = { "answers", "answer", COLUMNS (answer_columns), "answer",
      "answer JOIN query ON query.id = query_id JOIN plan ON plan.id = plan_id",
      "uid = ?1 AND place = ?2",
      "INSERT INTO plan (hash, model_text, cluster_text, plan_text) SELECT ?3, ?4, ?5, ?6"
      " WHERE NOT EXISTS (SELECT 1 FROM plan WHERE " SAME_ANSWER ")",
      NULL, NULL, "its query is not in the store" },
  [DB_KIND_MEASUREMENTS]
  = { "measurements", "measurement", COLUMNS (measurement_columns), "run_measurement",
      "run_measurement", "source = ?3 AND row_id = ?4", NULL, NULL, "", NULL },
  [DB_KIND_OPS] = { "ops", "op", COLUMNS (op_columns), "op_measurement", "op_measurement",
                    "uid = ?2", NULL, NULL, "", NULL },
  [DB_KIND_WORKSPACES]
  = { "cudnn", "answer of cuDNN", COLUMNS (workspace_columns), "attention_workspace",
      "attention_workspace",
      "cudnn = ?4 AND architecture = ?5 AND pass = ?6 AND mask = ?7 AND format = ?8 AND batch = ?9"
      " AND seq = ?10 AND heads = ?11 AND kv_heads = ?12 AND head_dim = ?13",
      NULL, NULL, "", NULL },
  [DB_KIND_PARAMS] = { "params", "parameter set", COLUMNS (param_columns), "param_set", "param_set",
                       "id = ?1", NULL, NULL, "", NULL },
  [DB_KIND_FITTED] = { "fitted", "fitted row", COLUMNS (fitted_columns), "param_set_row",
                       "param_set_row LEFT JOIN run ON run.id = run_id LEFT JOIN run_measurement"
                       " ON run_measurement.id = run_measurement_id LEFT JOIN op_measurement"
                       " ON op_measurement.id = op_measurement_id",
                       "param_set_id = ?1 AND run.uid IS ?2 AND source IS ?3 AND row_id IS ?4"
                       " AND op_measurement.uid IS ?5",
                       NULL, NULL, NULL, "it, or its parameter set, is not in the store" },
};

const char *
db_kind_name (DbKind kind)
{
  return kinds[kind].name;
}

gboolean
db_kind_parse (const char *name, DbKind *out_kind, GError **error)
{
  const char *names[DB_N_KINDS + 1] = { NULL };
  g_autofree char *hint = NULL;
  g_autofree char *shown = NULL;

  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    {
      names[kind] = kinds[kind].name;
      if (strcmp (name, names[kind]) == 0)
        {
          *out_kind = kind;
          return TRUE;
        }
    }
  hint = plan_text_suggest (name, names);
  shown = plan_text_quote (name);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "the store has no %s; %s", shown, hint);
  return FALSE;
}

guint
db_kind_n_columns (DbKind kind)
{
  return kinds[kind].n_columns;
}

const char *
db_kind_column_name (DbKind kind, guint column)
{
  return kinds[kind].columns[column].name;
}

DbType
db_kind_column_type (DbKind kind, guint column)
{
  return kinds[kind].columns[column].type;
}

DbTable *
db_table_new (DbKind kind)
{
  DbTable *self = g_new0 (DbTable, 1);

  self->kind = kind;
  self->cells = g_ptr_array_new_with_free_func (g_free);
  self->lines = g_array_new (FALSE, FALSE, sizeof (guint));
  return self;
}

void
db_table_free (DbTable *self)
{
  if (!self)
    return;
  g_ptr_array_unref (self->cells);
  g_array_unref (self->lines);
  g_free (self);
}

guint
db_table_n_rows (const DbTable *self)
{
  return self->cells->len / kinds[self->kind].n_columns;
}

void
db_table_add (DbTable *self, const char *const (*cells)[2], guint n_cells, guint line)
{
  const guint start = self->cells->len;

  g_ptr_array_set_size (self->cells, (gint)(start + kinds[self->kind].n_columns));
  for (guint i = 0; i < n_cells; i++)
    {
      guint c = 0;

      while (strcmp (kinds[self->kind].columns[c].name, cells[i][0]) != 0)
        c++;
      self->cells->pdata[start + c] = g_strdup (cells[i][1]);
    }
  g_array_append_val (self->lines, line);
}

const char *
db_table_cell (const DbTable *self, guint row, guint column)
{
  return g_ptr_array_index (self->cells, row * kinds[self->kind].n_columns + column);
}

const char *
db_table_cell_named (const DbTable *self, guint row, const char *column)
{
  for (guint c = 0; c < kinds[self->kind].n_columns; c++)
    if (strcmp (kinds[self->kind].columns[c].name, column) == 0)
      return db_table_cell (self, row, c);
  g_assert_not_reached ();
}

static const char *
read_expression (const Column *column)
{
  return column->read ? column->read : column->name;
}

static char *
select_sql (DbKind kind, const char *where)
{
  GString *sql = g_string_new ("SELECT");

  for (guint c = 0; c < kinds[kind].n_columns; c++)
    g_string_append_printf (sql, "%s %s", c ? "," : "", read_expression (&kinds[kind].columns[c]));
  g_string_append_printf (sql, " FROM %s%s%s ORDER BY %s%s", kinds[kind].from,
                          where ? " WHERE " : "", where ? where : "", kinds[kind].table,
                          kind == DB_KIND_STEPS     ? ".run_id, step"
                          : kind == DB_KIND_ANSWERS ? ".query_id, place"
                                                    : ".rowid");
  return g_string_free (sql, FALSE);
}

static char *
insert_sql (DbKind kind)
{
  g_autoptr (GString) values = g_string_new (NULL);
  GString *sql = g_string_new (NULL);

  for (guint c = 0; c < kinds[kind].n_columns; c++)
    {
      const Column *column = &kinds[kind].columns[c];
      const char *target = column->target ? column->target : column->name;

      if (!*target)
        continue;
      g_string_append_printf (sql, "%s%s", sql->len ? ", " : "", target);
      g_string_append (values, values->len ? ", " : "");
      if (column->value)
        g_string_append (values, column->value);
      else
        g_string_append_printf (values, "?%u", c + 1);
    }
  g_string_append_printf (sql, ") VALUES (%s)", values->str);
  g_string_prepend (sql, " (");
  g_string_prepend (sql, kinds[kind].table);
  g_string_prepend (sql, "INSERT INTO ");
  return g_string_free (sql, FALSE);
}

/* The shortest text that reads back exactly. */
static char *
print_real (double value)
{
  if (isinf (value))
    return g_strdup (value > 0 ? "inf" : "-inf");
  return plan_units_format_real (value + 0.0); /* SQLite does not store -0 */
}

static void
take_row (DbQuery *query, DbKind kind, GPtrArray *cells)
{
  for (guint c = 0; c < kinds[kind].n_columns; c++)
    if (kinds[kind].columns[c].type < DB_TYPE_REAL)
      g_ptr_array_add (cells, db_query_take_text (query)); /* SQLite prints whole numbers */
    else
      {
        const double value = db_query_take_real (query);

        g_ptr_array_add (cells, isnan (value) ? NULL : print_real (value));
      }
}

DbTable *
db_store_read_table (DbStore *self, DbKind kind, const char *key, GError **error)
{
  g_autoptr (DbTable) table = db_table_new (kind);
  const Column *first = kinds[kind].columns;
  g_autofree char *where = g_strdup_printf ("%s = ?1", read_expression (first));
  g_autofree char *sql = select_sql (kind, key ? where : NULL);
  g_auto (DbQuery) read = { 0 };

  db_store_doing (self, "read %s", kinds[kind].name);
  if (!db_query_prepare (&read, self, sql, error))
    return NULL;
  if (key)
    db_query_put_text (&read, key);
  while (db_query_next (&read))
    take_row (&read, kind, table->cells);
  return db_query_end (&read, error) ? g_steal_pointer (&table) : NULL;
}

static gboolean
read_all (DbStore *self, GPtrArray *tables, GError **error)
{
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    {
      DbTable *table = db_store_read_table (self, kind, NULL, error);

      if (!table)
        return FALSE;
      g_ptr_array_add (tables, table);
    }
  return TRUE;
}

GPtrArray *
db_store_read_tables (DbStore *self, GError **error)
{
  g_autoptr (GPtrArray) tables = g_ptr_array_new_with_free_func ((GDestroyNotify)db_table_free);
  gboolean ok;

  db_store_doing (self, "read the store");
  if (!db_store_exec (self, "BEGIN", error))
    return NULL;
  ok = read_all (self, tables, error);
  sqlite3_exec (self->db, "ROLLBACK", NULL, NULL, NULL);
  return ok ? g_steal_pointer (&tables) : NULL;
}

static gboolean
parse_real (const char *text, const char *what, gboolean is_amount, double *out_value,
            GError **error)
{
  if (is_amount)
    return plan_units_parse_amount (text, what, out_value, error);
  *out_value = strcmp (text, "inf") == 0 ? INFINITY : -INFINITY;
  return strcmp (text, "inf") == 0 || strcmp (text, "-inf") == 0
         || plan_units_parse_real (text, what, -G_MAXDOUBLE, G_MAXDOUBLE, out_value, error);
}

/* Rewrites numbers as the store prints them. */
static gboolean
normalise_row (const Column *columns, guint n_columns, char **cells, GError **error)
{
  for (guint c = 0; c < n_columns; c++)
    {
      gint64 whole;
      double real;

      if (!cells[c] || columns[c].type == DB_TYPE_TEXT)
        continue;
      if (columns[c].type == DB_TYPE_INT
              ? !plan_units_parse_int (cells[c], columns[c].name, G_MININT64, G_MAXINT64, &whole,
                                       error)
              : !parse_real (cells[c], columns[c].name, columns[c].type == DB_TYPE_AMOUNT, &real,
                             error))
        return FALSE;
      g_free (cells[c]);
      cells[c] = columns[c].type == DB_TYPE_INT ? g_strdup_printf ("%" G_GINT64_FORMAT, whole)
                                                : print_real (real);
    }
  return TRUE;
}

/* Binds a row's values to a query. Each parameter of the query is a column; the last columns may
 * not be needed. */
static void
put_row_values (DbQuery *query, const Column *columns, char *const *cells)
{
  const int n_marks = sqlite3_bind_parameter_count (query->stmt);

  for (int c = 0; c < n_marks; c++)
    if (!cells[c] || columns[c].type == DB_TYPE_TEXT)
      db_query_put_text (query, cells[c]);
    else if (columns[c].type == DB_TYPE_INT)
      db_query_put_int (query, g_ascii_strtoll (cells[c], NULL, 10));
    else
      db_query_put_real (query, g_ascii_strtod (cells[c], NULL));
}

/* The statements that add rows of one kind. */
typedef struct
{
  DbStore *store;
  DbKind kind;
  DbQuery same, prepare, insert, end;
} Putter;

static void
putter_clear (Putter *self)
{
  db_query_clear (&self->same);
  db_query_clear (&self->prepare);
  db_query_clear (&self->insert);
  db_query_clear (&self->end);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Putter, putter_clear)

static gboolean
putter_prepare (Putter *self, GError **error)
{
  g_autofree char *same = select_sql (self->kind, kinds[self->kind].same);
  g_autofree char *insert = insert_sql (self->kind);
  const char *prepare = kinds[self->kind].prepare, *end = kinds[self->kind].end;

  return db_query_prepare (&self->same, self->store, same, error)
         && db_query_prepare (&self->insert, self->store, insert, error)
         && (!prepare || db_query_prepare (&self->prepare, self->store, prepare, error))
         && (!end || db_query_prepare (&self->end, self->store, end, error));
}

static gboolean
add_row (Putter *self, char *const *cells, GError **error)
{
  const Column *columns = kinds[self->kind].columns;
  const char *missing = kinds[self->kind].missing;
  g_autoptr (GError) why = NULL;
  int code;

  if (self->prepare.stmt)
    {
      put_row_values (&self->prepare, columns, cells);
      if (!db_query_run (&self->prepare, error))
        return FALSE;
    }
  put_row_values (&self->insert, columns, cells);
  if (db_query_run (&self->insert, &why))
    return TRUE;
  code = sqlite3_extended_errcode (self->store->db);
  if (missing && (code == SQLITE_CONSTRAINT_NOTNULL || code == SQLITE_CONSTRAINT_CHECK))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s", missing);
      return FALSE;
    }
  g_propagate_error (error, g_steal_pointer (&why));
  return FALSE;
}

/* Whether a column says how the row came into this store and nothing about its subject: its number,
 * when others' measurements were read, or which program asked cuDNN and when. */
static gboolean
is_local (DbKind kind, guint column)
{
  const Column *c = &kinds[kind].columns[column];

  return (column == 0 && c->value)
         || ((kind == DB_KIND_MEASUREMENTS || kind == DB_KIND_OPS || kind == DB_KIND_WORKSPACES)
             && strcmp (c->name, "created") == 0)
         || (kind == DB_KIND_WORKSPACES && strcmp (c->name, "program_version") == 0);
}

/* Compares a row with the stored one. A run may have ended since one of the two was written;
 * nothing else may differ. */
static gboolean
meet_row (Putter *self, char *const *cells, char *const *stored, GError **error)
{
  const Column *columns = kinds[self->kind].columns;
  gboolean has_ended = FALSE;

  for (guint c = 0; c < kinds[self->kind].n_columns; c++)
    {
      if (is_local (self->kind, c) || g_strcmp0 (cells[c], stored[c]) == 0)
        continue;
      if (columns[c].may_end && !has_ended)
        has_ended = strcmp (columns[c].name, "state") == 0
                    && (g_strcmp0 (cells[c], "running") == 0 || strcmp (stored[c], "running") == 0);
      if (!columns[c].may_end || !has_ended)
        {
          g_autofree char *mine = plan_text_quote (cells[c] ? cells[c] : "");
          g_autofree char *theirs = plan_text_quote (stored[c] ? stored[c] : "");

          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "this %s is stored already, and differs: %s is %s, stored is %s",
                       kinds[self->kind].one, columns[c].name, mine, theirs);
          return FALSE;
        }
    }
  if (!has_ended)
    return TRUE;
  put_row_values (&self->end, columns, cells);
  return db_query_run (&self->end, error);
}

static gboolean
put_row (Putter *self, char **cells, guint *added, guint *present, GError **error)
{
  const Column *columns = kinds[self->kind].columns;
  g_autoptr (GPtrArray) stored = g_ptr_array_new_with_free_func (g_free);

  if (!normalise_row (columns, kinds[self->kind].n_columns, cells, error))
    return FALSE;
  put_row_values (&self->same, columns, cells);
  while (db_query_next (&self->same))
    take_row (&self->same, self->kind, stored);
  if (!db_query_end (&self->same, error))
    return FALSE;
  if (stored->len)
    {
      ++*present;
      return meet_row (self, cells, (char *const *)stored->pdata, error);
    }
  ++*added;
  return add_row (self, cells, error);
}

gboolean
db_store_put_table (DbStore *self, DbTable *table, const char *origin, guint *io_added,
                    guint *io_present, GError **error)
{
  g_auto (Putter) putter = { .store = self, .kind = table->kind };
  guint added = 0, present = 0;

  db_store_doing (self, "import %s", kinds[table->kind].name);
  if (!putter_prepare (&putter, error))
    return FALSE;
  for (guint row = 0; row < db_table_n_rows (table); row++)
    if (!put_row (&putter, (char **)table->cells->pdata + row * kinds[table->kind].n_columns,
                  &added, &present, error))
      {
        if (row < table->lines->len)
          g_prefix_error (error, "%s:%u: ", origin, g_array_index (table->lines, guint, row));
        else
          g_prefix_error (error, "%s: %s: ", origin, kinds[table->kind].name);
        return FALSE;
      }
  *io_added += added;
  *io_present += present;
  return TRUE;
}

static gboolean
delete_row (DbStore *self, DbKind kind, DbQuery *delete, const char *key, GError **error)
{
  g_autoptr (GError) why = NULL;

  db_store_doing (self, "delete %s %s", kinds[kind].one, key);
  db_query_put_text (delete, key);
  if (!db_query_run (delete, &why))
    {
      if (sqlite3_extended_errcode (self->db) == SQLITE_CONSTRAINT_FOREIGNKEY)
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: cannot %s: %s; delete that first",
                     self->path, self->doing,
                     kind == DB_KIND_PLANS ? "a run or a query has it"
                                           : "a parameter set was fitted to it");
      else
        g_propagate_error (error, g_steal_pointer (&why));
      return FALSE;
    }
  if (sqlite3_changes (self->db) == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no %s %s", self->path,
                   kinds[kind].one, key);
      return FALSE;
    }
  return TRUE;
}

gboolean
db_store_delete (DbStore *self, DbKind kind, const char *const *keys, guint n_keys, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_auto (DbQuery) delete = { 0 };
  g_autofree char *sql = g_strdup_printf ("DELETE FROM %s WHERE %s = ?", kinds[kind].table,
                                          read_expression (kinds[kind].columns));

  if (!kinds[kind].tidy)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s are not deleted alone: they go with what they belong to", kinds[kind].name);
      return FALSE;
    }
  db_store_doing (self, "delete %s", kinds[kind].name);
  if (!db_transaction_begin (&transaction, self, error)
      || !db_query_prepare (&delete, self, sql, error))
    return FALSE;
  for (guint i = 0; i < n_keys; i++)
    if (!delete_row (self, kind, &delete, keys[i], error))
      return FALSE;
  return db_store_exec (self, kinds[kind].tidy, error)
         && db_transaction_commit (&transaction, error);
}
