/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue-build OUT FOLDER: makes the catalogue from the shipped devices and clusters and from
 * the tables in FOLDER. Equal input gives equal bytes. It runs while fsdplan is built and is not
 * installed. */
#include "config.h"

#include "db/catalogue-format.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/cluster/cluster.h"

#include <glib/gstdio.h>
#include <sqlite3.h>

#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS 16

static const char schema[] =
#include "db/catalogue.sql.inc"
    ;

/* A table: its file, header and statement. Types: t text, i whole number, r real number; a capital
 * letter: may be empty. */
static const struct
{
  const char *file, *header, *types, *insert;
} tables[] = {
  { "sources.csv", "source,text", "tt", "INSERT INTO source VALUES (?, ?)" },
  { "curves.csv",
    "curve,source,gpu,ranks,nodes,op,algorithm,link,network,nvlink_domain,nic_gbit_s,note",
    "ttTiitttTIRT",
    "INSERT INTO collective_curve VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 * 1e9 / 8, "
    "?12)" },
  { "points.csv", "curve,size_bytes,bus_gb_s,time_us,row", "tIrRt",
    "INSERT INTO collective_point VALUES (?1, ?2, ?3 * 1e9, CAST (round (?4 * 1e3) AS INTEGER), "
    "?5)" },
  { "products.csv", "row,source,gpu,kind,pass,batch,m,n,k,layout,accumulates,out_dtype,tflops",
    "tttttiiiiTttr",
    "INSERT INTO product VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
    "CASE ?11 WHEN 'yes' THEN 1 WHEN 'no' THEN 0 END, ?12, ?13 * 1e12)" },
  { "attention.csv",
    "row,source,gpu,pass,batch,seq,heads,kv_heads,qk_dim,v_dim,peak_tflops,"
    "efficiency",
    "ttttiiiiiirr",
    "INSERT INTO attention VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 * 1e12, ?12)" },
  { "workspaces.csv",
    "source,cudnn,architecture,pass,mask,format,batch,seq,heads,kv_heads,head_dim,workspace_bytes",
    "tittttiiiiii", "INSERT INTO attention_workspace VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)" },
  { "parameters.csv", "params,kind,key,value,source", "tttrt",
    "INSERT INTO parameter VALUES (?, ?, ?, ?, ?)" },
};

static gboolean
refuse (sqlite3 *db, const char *what, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s", what, sqlite3_errmsg (db));
  return FALSE;
}

static gboolean
execute (sqlite3 *db, const char *sql, GError **error)
{
  return sqlite3_exec (db, sql, NULL, NULL, NULL) == SQLITE_OK || refuse (db, "catalogue", error);
}

static void
finalize (sqlite3_stmt **statement)
{
  sqlite3_finalize (*statement);
}
#define g_auto_statement __attribute__ ((cleanup (finalize))) sqlite3_stmt *

/* Runs a filled statement, then empties it. */
static gboolean
insert (sqlite3 *db, sqlite3_stmt *statement, const char *what, GError **error)
{
  const gboolean ok = sqlite3_step (statement) == SQLITE_DONE || refuse (db, what, error);
  sqlite3_reset (statement);
  sqlite3_clear_bindings (statement);
  return ok;
}

/* Takes the next field off a line, in place. A field with a comma or quote is quoted. */
static char *
next_field (char **rest)
{
  char *const field = *rest, *from = field, *to = field;
  gboolean quoted = *from == '"';
  from += quoted;
  while (*from && (quoted || *from != ','))
    if (quoted && *from == '"' && *++from != '"')
      quoted = FALSE;
    else
      *to++ = *from++;
  *rest = *from == ',' ? from + 1 : NULL;
  *to = '\0';
  return field;
}

static gboolean
bind (sqlite3_stmt *statement, int column, char type, const char *field, const char *what,
      GError **error)
{
  gint64 whole;
  double real;
  if (*field == '\0' && g_ascii_isupper (type))
    return TRUE; /* stored as NULL */
  switch (g_ascii_tolower (type))
    {
    case 'i':
      if (!plan_units_parse_int (field, what, G_MININT64, G_MAXINT64, &whole, error))
        return FALSE;
      return sqlite3_bind_int64 (statement, column, whole) == SQLITE_OK;
    case 'r':
      if (!plan_units_parse_real (field, what, -1e300, 1e300, &real, error))
        return FALSE;
      return sqlite3_bind_double (statement, column, real) == SQLITE_OK;
    default:
      return sqlite3_bind_text (statement, column, field, -1, SQLITE_TRANSIENT) == SQLITE_OK;
    }
}

static gboolean
add_line (sqlite3 *db, sqlite3_stmt *statement, const char *types, char *line, const char *what,
          GError **error)
{
  char *rest = line;
  int column = 0;
  for (; rest && types[column]; column++)
    if (!bind (statement, column + 1, types[column], next_field (&rest), what, error))
      return FALSE;
  if (rest || types[column])
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: not %u fields", what,
                   (guint)strlen (types));
      return FALSE;
    }
  return insert (db, statement, what, error);
}

static gboolean
add_table (sqlite3 *db, const char *folder, guint table, GError **error)
{
  g_auto_statement statement = NULL;
  g_autofree char *path = g_build_filename (folder, tables[table].file, NULL);
  g_autofree char *text = NULL;
  gsize length;
  if (!plan_text_read_file (path, &text, &length, error))
    return FALSE;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  if (strcmp (lines[0], tables[table].header) != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:1: the header must be %s", path,
                   tables[table].header);
      return FALSE;
    }
  if (sqlite3_prepare_v2 (db, tables[table].insert, -1, &statement, NULL) != SQLITE_OK)
    return refuse (db, tables[table].file, error);
  for (guint i = 1; lines[i] && (*lines[i] || lines[i + 1]); i++)
    {
      g_autofree char *what = g_strdup_printf ("%s:%u", path, i + 1);
      if (!add_line (db, statement, tables[table].types, lines[i], what, error))
        return FALSE;
    }
  return TRUE;
}

/* Adds the facts of a device, or those of a cluster that do not belong to its device. */
static gboolean
add_facts (sqlite3 *db, const PlanCluster *of, gboolean is_device, GError **error)
{
  g_auto_statement fact = NULL;
  g_auto_statement source = NULL;
  const char *into = is_device ? "INSERT INTO gpu_fact VALUES (?, ?, ?, ?, ?)"
                               : "INSERT INTO cluster_fact VALUES (?, ?, ?, ?, ?)";
  if (sqlite3_prepare_v2 (db, into, -1, &fact, NULL) != SQLITE_OK
      || sqlite3_prepare_v2 (db, "INSERT OR IGNORE INTO source VALUES (?1, ?1)", -1, &source, NULL)
             != SQLITE_OK)
    return refuse (db, of->name, error);
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    {
      const char *text = plan_cluster_source_of (of, f);
      if (!plan_cluster_knows (of, f) || plan_fact_is_of_device (f) != is_device)
        continue;
      sqlite3_bind_text (source, 1, text, -1, SQLITE_STATIC);
      sqlite3_bind_text (fact, 1, of->name, -1, SQLITE_STATIC);
      sqlite3_bind_text (fact, 2, plan_fact_key (f), -1, SQLITE_STATIC);
      sqlite3_bind_double (fact, 3, plan_cluster_value (of, f));
      sqlite3_bind_text (fact, 4, plan_fact_unit (f), -1, SQLITE_STATIC);
      sqlite3_bind_text (fact, 5, text, -1, SQLITE_STATIC);
      if (!insert (db, source, of->name, error) || !insert (db, fact, of->name, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
add_devices (sqlite3 *db, GError **error)
{
  g_auto_statement statement = NULL;
  if (sqlite3_prepare_v2 (db, "INSERT INTO gpu VALUES (?)", -1, &statement, NULL) != SQLITE_OK)
    return refuse (db, "gpu", error);
  for (const char *const *name = plan_cluster_devices_shipped (); *name; name++)
    {
      g_autoptr (PlanCluster) device = plan_cluster_new_device (*name, error);
      if (!device)
        return FALSE;
      sqlite3_bind_text (statement, 1, *name, -1, SQLITE_STATIC);
      if (!insert (db, statement, *name, error) || !add_facts (db, device, TRUE, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
add_clusters (sqlite3 *db, GError **error)
{
  g_auto_statement statement = NULL;
  if (sqlite3_prepare_v2 (db, "INSERT INTO cluster VALUES (?, ?, ?, ?)", -1, &statement, NULL)
      != SQLITE_OK)
    return refuse (db, "cluster", error);
  for (const char *const *name = plan_cluster_presets (); *name; name++)
    {
      g_autoptr (PlanCluster) cluster = plan_cluster_new (*name, error);
      if (!cluster)
        return FALSE;
      sqlite3_bind_text (statement, 1, *name, -1, SQLITE_STATIC);
      sqlite3_bind_text (statement, 2, cluster->device_name, -1, SQLITE_STATIC);
      sqlite3_bind_int64 (statement, 3, cluster->nodes);
      sqlite3_bind_int64 (statement, 4, cluster->devices_per_node);
      if (!insert (db, statement, *name, error) || !add_facts (db, cluster, FALSE, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
fill (sqlite3 *db, const char *folder, GError **error)
{
  g_autofree char *mark = g_strdup_printf ("PRAGMA application_id = %d; PRAGMA user_version = %d",
                                           DB_CATALOGUE_APPLICATION_ID, DB_CATALOGUE_VERSION);
  if (!execute (db, "PRAGMA journal_mode = OFF; PRAGMA foreign_keys = ON; BEGIN", error)
      || !execute (db, schema, error) || !execute (db, mark, error) || !add_devices (db, error)
      || !add_clusters (db, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (tables); i++)
    if (!add_table (db, folder, i, error))
      return FALSE;
  return execute (db, "COMMIT; VACUUM", error);
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  sqlite3 *db = NULL;
  if (argc != 3)
    {
      g_warning ("usage: catalogue-build OUT FOLDER");
      return EXIT_FAILURE;
    }
  g_remove (argv[1]);
  const gboolean ok = sqlite3_open (argv[1], &db) == SQLITE_OK ? fill (db, argv[2], &error)
                                                               : refuse (db, argv[1], &error);
  sqlite3_close (db);
  if (ok)
    return EXIT_SUCCESS;
  g_warning ("%s", error->message);
  g_remove (argv[1]); /* an incomplete catalogue is useless */
  return EXIT_FAILURE;
}
