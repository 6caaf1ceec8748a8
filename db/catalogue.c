/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/catalogue.h"

#include "db/catalogue-format.h"
#include "db/store-private.h"
#include "planner/base/error.h"

/* Environment variable with the path of the catalogue; it comes first. */
#define VARIABLE "FSDPLAN_CATALOGUE"

/* Path of the catalogue in the build folder, from where a program that is not installed runs. */
#define BUILT "db" G_DIR_SEPARATOR_S "catalogue.db"
#define RUNS "runs.csv"
#define ADJUSTMENTS "adjustments.txt"
#define INSTALLED PKGDATADIR G_DIR_SEPARATOR_S "catalogue.db"

static char *
find (void)
{
  const char *named = g_getenv (VARIABLE);
  if (named)
    return g_strdup (named);
  g_autofree char *program = g_file_read_link ("/proc/self/exe", NULL);
  g_autofree char *folder = program ? g_path_get_dirname (program) : g_strdup (".");
  g_autofree char *built = g_build_filename (folder, BUILT, NULL);
  return g_strdup (g_file_test (built, G_FILE_TEST_EXISTS) ? built : INSTALLED);
}

static char *
find_beside (const char *name)
{
  g_autofree char *path = find ();
  g_autofree char *folder = g_path_get_dirname (path);
  return g_build_filename (folder, name, NULL);
}

char *
db_catalogue_runs_path (void)
{
  return find_beside (RUNS);
}

char *
db_catalogue_adjustments_path (void)
{
  return find_beside (ADJUSTMENTS);
}

/* The URI with which SQLite opens a file that nobody writes: without locks and journal. */
static char *
immutable_uri (const char *path)
{
  g_autofree char *absolute = g_canonicalize_filename (path, NULL);
  g_autofree char *escaped = g_uri_escape_string (absolute, "/", FALSE);
  return g_strdup_printf ("file://%s?mode=ro&immutable=1", escaped);
}

static gboolean
read_pragma (DbStore *self, const char *sql, gint64 *out_value, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  gint64 value = 0;
  if (!db_query_prepare (&query, self, sql, error))
    return FALSE;
  while (db_query_next (&query))
    value = db_query_take_int (&query);
  if (!db_query_end (&query, error))
    return FALSE;
  *out_value = value;
  return TRUE;
}

static gboolean
check_format (DbStore *self, const char *path, GError **error)
{
  gint64 application, version;
  if (!read_pragma (self, "PRAGMA catalogue.application_id", &application, error)
      || !read_pragma (self, "PRAGMA catalogue.user_version", &version, error))
    return FALSE;
  if (application != DB_CATALOGUE_APPLICATION_ID)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: this is not a catalogue of fsdplan",
                   path);
      return FALSE;
    }
  if (version == DB_CATALOGUE_VERSION)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "%s: this catalogue is of version %" G_GINT64_FORMAT
               ", and this program reads version %d: name the one it came with in " VARIABLE,
               path, version, DB_CATALOGUE_VERSION);
  return FALSE;
}

static void
detach (DbStore *self)
{
  sqlite3_exec (self->db, "DETACH catalogue", NULL, NULL, NULL);
}

gboolean
db_catalogue_attach (DbStore *self, GError **error)
{
  g_autofree char *path = find ();
  g_autofree char *uri = immutable_uri (path);
  db_store_doing (self, "attach the catalogue %s", path);
  if (!g_file_test (path, G_FILE_TEST_IS_REGULAR))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO,
                   "%s: there is no catalogue here: install fsdplan, or name one in " VARIABLE,
                   path);
      return FALSE;
    }
  g_auto (DbQuery) query = { 0 };
  if (!db_query_prepare (&query, self, "ATTACH ? AS catalogue", error))
    return FALSE;
  db_query_put_text (&query, uri);
  if (!db_query_run (&query, error))
    return FALSE;
  if (check_format (self, path, error))
    return TRUE;
  detach (self);
  return FALSE;
}

DbStore *
db_catalogue_open (GError **error)
{
  g_autoptr (DbStore) self = db_store_open (":memory:", error);
  return self && db_catalogue_attach (self, error) ? g_steal_pointer (&self) : NULL;
}

static void
clear_point (gpointer data)
{
  g_free (((DbCurvePoint *)data)->row);
}

static void
clear_curve (gpointer data)
{
  DbCurve *self = data;
  char *const texts[] = { self->id,   self->gpu,     self->op,   self->algorithm,
                          self->link, self->network, self->note, self->source };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_free (texts[i]);
  g_array_unref (self->points);
}

static void
clear_product (gpointer data)
{
  DbProduct *self = data;
  char *const texts[] = { self->row,    self->gpu,       self->kind,  self->pass,
                          self->layout, self->out_dtype, self->source };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_free (texts[i]);
}

static void
clear_attention (gpointer data)
{
  DbAttention *self = data;
  g_free (self->row);
  g_free (self->gpu);
  g_free (self->pass);
  g_free (self->source);
}

static void
clear_workspace (gpointer data)
{
  DbAttentionWorkspace *self = data;
  char *const texts[] = { self->architecture, self->pass, self->mask, self->format, self->source };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_free (texts[i]);
}

static void
clear_fact (gpointer data)
{
  DbFact *self = data;
  g_free (self->of);
  g_free (self->key);
  g_free (self->unit);
  g_free (self->source);
}

static GArray *
new_array (guint size, GDestroyNotify clear)
{
  GArray *array = g_array_new (FALSE, TRUE, size);
  g_array_set_clear_func (array, clear);
  return array;
}

/* Ends a list; NULL when the query failed. */
static GArray *
ended (DbQuery *query, GArray **array, GError **error)
{
  return db_query_end (query, error) ? g_steal_pointer (array) : NULL;
}

static gboolean
read_points (DbStore *self, DbCurve *curve, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  if (!db_query_prepare (
          &query, self,
          "SELECT coalesce (size_bytes, 0), bus_bytes_per_s,"
          "       coalesce (time_ns, 0), row"
          "  FROM catalogue.collective_point WHERE curve = ? ORDER BY size_bytes, row",
          error))
    return FALSE;
  db_query_put_text (&query, curve->id);
  while (db_query_next (&query))
    {
      DbCurvePoint point;
      point.size_bytes = db_query_take_int (&query);
      point.bus_bytes_per_s = db_query_take_real (&query);
      point.time_ns = db_query_take_int (&query);
      point.row = db_query_take_text (&query);
      g_array_append_val (curve->points, point);
    }
  return db_query_end (&query, error);
}

GArray *
db_catalogue_list_curves (DbStore *self, const char *gpu, const char *op, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  g_autoptr (GArray) curves = new_array (sizeof (DbCurve), clear_curve);
  db_store_doing (self, "list collectives");
  if (!db_query_prepare (&query, self,
                         "SELECT c.id, gpu, op, algorithm, ranks, nodes,"
                         "       coalesce (nvlink_domain, 0), coalesce (nic_bytes_per_s, 0),"
                         "       link, network, note, s.text"
                         "  FROM catalogue.collective_curve c JOIN catalogue.source s"
                         "    ON s.id = c.source"
                         " WHERE gpu IS coalesce (?, gpu) AND op = coalesce (?, op)"
                         " ORDER BY gpu, op, ranks, c.id",
                         error))
    return NULL;
  db_query_put_text (&query, gpu);
  db_query_put_text (&query, op);
  while (db_query_next (&query))
    {
      DbCurve curve = { .points = new_array (sizeof (DbCurvePoint), clear_point) };
      curve.id = db_query_take_text (&query);
      curve.gpu = db_query_take_text (&query);
      curve.op = db_query_take_text (&query);
      curve.algorithm = db_query_take_text (&query);
      curve.ranks = db_query_take_int (&query);
      curve.nodes = db_query_take_int (&query);
      curve.nvlink_domain = db_query_take_int (&query);
      curve.nic_bytes_per_s = db_query_take_real (&query);
      curve.link = db_query_take_text (&query);
      curve.network = db_query_take_text (&query);
      curve.note = db_query_take_text (&query);
      curve.source = db_query_take_text (&query);
      g_array_append_val (curves, curve);
    }
  if (!db_query_end (&query, error))
    return NULL;
  for (guint i = 0; i < curves->len; i++)
    if (!read_points (self, &g_array_index (curves, DbCurve, i), error))
      return NULL;
  return g_steal_pointer (&curves);
}

GArray *
db_catalogue_list_products (DbStore *self, const char *gpu, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  g_autoptr (GArray) products = new_array (sizeof (DbProduct), clear_product);
  db_store_doing (self, "list matrix products");
  if (!db_query_prepare (&query, self,
                         "SELECT row, gpu, kind, pass, batch, m, n, k, layout, accumulates,"
                         "       out_dtype, flops_per_s, s.text"
                         "  FROM catalogue.product p JOIN catalogue.source s ON s.id = p.source"
                         " WHERE gpu = coalesce (?, gpu)"
                         " ORDER BY gpu, kind, pass, m, n, k, batch, out_dtype, row",
                         error))
    return NULL;
  db_query_put_text (&query, gpu);
  while (db_query_next (&query))
    {
      DbProduct product;
      product.row = db_query_take_text (&query);
      product.gpu = db_query_take_text (&query);
      product.kind = db_query_take_text (&query);
      product.pass = db_query_take_text (&query);
      product.batch = db_query_take_int (&query);
      product.m = db_query_take_int (&query);
      product.n = db_query_take_int (&query);
      product.k = db_query_take_int (&query);
      product.layout = db_query_take_text (&query);
      product.accumulates = db_query_take_int (&query) != 0;
      product.out_dtype = db_query_take_text (&query);
      product.flops_per_s = db_query_take_real (&query);
      product.source = db_query_take_text (&query);
      g_array_append_val (products, product);
    }
  return ended (&query, &products, error);
}

GArray *
db_catalogue_list_attention (DbStore *self, const char *gpu, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  g_autoptr (GArray) rows = new_array (sizeof (DbAttention), clear_attention);
  db_store_doing (self, "list attention");
  if (!db_query_prepare (&query, self,
                         "SELECT row, gpu, pass, batch, seq, heads, kv_heads, qk_dim, v_dim,"
                         "       peak_flops_per_s, share, s.text"
                         "  FROM catalogue.attention a JOIN catalogue.source s ON s.id = a.source"
                         " WHERE gpu = coalesce (?, gpu)"
                         " ORDER BY gpu, pass, seq, heads, kv_heads, qk_dim, batch, row",
                         error))
    return NULL;
  db_query_put_text (&query, gpu);
  while (db_query_next (&query))
    {
      DbAttention row;
      row.row = db_query_take_text (&query);
      row.gpu = db_query_take_text (&query);
      row.pass = db_query_take_text (&query);
      row.batch = db_query_take_int (&query);
      row.seq = db_query_take_int (&query);
      row.heads = db_query_take_int (&query);
      row.kv_heads = db_query_take_int (&query);
      row.qk_dim = db_query_take_int (&query);
      row.v_dim = db_query_take_int (&query);
      row.peak_flops_per_s = db_query_take_real (&query);
      row.share = db_query_take_real (&query);
      row.source = db_query_take_text (&query);
      g_array_append_val (rows, row);
    }
  return ended (&query, &rows, error);
}

GArray *
db_catalogue_list_workspaces (DbStore *self, const char *architecture, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  g_autoptr (GArray) rows = new_array (sizeof (DbAttentionWorkspace), clear_workspace);
  db_store_doing (self, "list workspaces");
  if (!db_query_prepare (
          &query, self,
          "SELECT cudnn, architecture, pass, mask, format, batch, seq, heads,"
          "       kv_heads, head_dim, workspace_bytes, s.text"
          "  FROM catalogue.attention_workspace w"
          "  JOIN catalogue.source s ON s.id = w.source"
          " WHERE architecture = coalesce (?, architecture)"
          " ORDER BY cudnn, architecture, pass, heads, kv_heads, head_dim, seq, batch",
          error))
    return NULL;
  db_query_put_text (&query, architecture);
  while (db_query_next (&query))
    {
      DbAttentionWorkspace row;
      row.cudnn = db_query_take_int (&query);
      row.architecture = db_query_take_text (&query);
      row.pass = db_query_take_text (&query);
      row.mask = db_query_take_text (&query);
      row.format = db_query_take_text (&query);
      row.batch = db_query_take_int (&query);
      row.seq = db_query_take_int (&query);
      row.heads = db_query_take_int (&query);
      row.kv_heads = db_query_take_int (&query);
      row.head_dim = db_query_take_int (&query);
      row.workspace_bytes = db_query_take_int (&query);
      row.source = db_query_take_text (&query);
      g_array_append_val (rows, row);
    }
  return ended (&query, &rows, error);
}

static GArray *
list_facts (DbStore *self, const char *sql, const char *of, GError **error)
{
  g_auto (DbQuery) query = { 0 };
  g_autoptr (GArray) facts = new_array (sizeof (DbFact), clear_fact);
  db_store_doing (self, "list facts");
  if (!db_query_prepare (&query, self, sql, error))
    return NULL;
  db_query_put_text (&query, of);
  while (db_query_next (&query))
    {
      DbFact fact;
      fact.of = db_query_take_text (&query);
      fact.key = db_query_take_text (&query);
      fact.value = db_query_take_real (&query);
      fact.unit = db_query_take_text (&query);
      fact.source = db_query_take_text (&query);
      g_array_append_val (facts, fact);
    }
  return ended (&query, &facts, error);
}

GArray *
db_catalogue_list_gpu_facts (DbStore *self, const char *gpu, GError **error)
{
  return list_facts (self,
                     "SELECT gpu, key, value, unit, s.text FROM catalogue.gpu_fact f"
                     "  JOIN catalogue.source s ON s.id = f.source"
                     " WHERE gpu = coalesce (?, gpu) ORDER BY gpu, key",
                     gpu, error);
}

GArray *
db_catalogue_list_cluster_facts (DbStore *self, const char *cluster, GError **error)
{
  return list_facts (self,
                     "SELECT cluster, key, value, unit, s.text FROM catalogue.cluster_fact f"
                     "  JOIN catalogue.source s ON s.id = f.source"
                     " WHERE cluster = coalesce (?, cluster) ORDER BY cluster, key",
                     cluster, error);
}

GArray *
db_catalogue_list_parameters (DbStore *self, const char *params, GError **error)
{
  return list_facts (self,
                     "SELECT params, key, value, '', s.text FROM catalogue.parameter f"
                     "  JOIN catalogue.source s ON s.id = f.source"
                     " WHERE params = coalesce (?, params) ORDER BY params, key",
                     params, error);
}
