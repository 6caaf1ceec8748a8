/* SPDX-License-Identifier: Apache-2.0 */
/* Imports tables of collectives and of matrix products. */
#include "config.h"

#include "cli/import.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <string.h>

#define MAX_SIZE (G_GINT64_CONSTANT (1) << 50)

/* The cell of a column that has one of two names in different tables. */
static const char *
cell (GHashTable *cells, const char *name, const char *other)
{
  const char *value = g_hash_table_lookup (cells, name);
  return value || !other ? value : g_hash_table_lookup (cells, other);
}

static gboolean
read_int (GHashTable *cells, const char *name, gint64 *out, GError **error)
{
  const char *value = cell (cells, name, NULL);
  return plan_units_parse_int (value ? value : "", name, 1, MAX_SIZE, out, error);
}

/* Reads a number; 0 for an empty cell. */
static gboolean
read_real (GHashTable *cells, const char *name, double *out, GError **error)
{
  const char *value = cell (cells, name, NULL);
  *out = 0;
  return !value || plan_units_parse_real (value, name, 0, 1e15, out, error);
}

static gboolean
read_text (GHashTable *cells, const char *name, const char *other, const char **out, GError **error)
{
  *out = cell (cells, name, other);
  if (!*out || !**out)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: it may not be empty", name);
  return *out && **out;
}

/* A measured op: what it was, where it ran, and how long it took. */
typedef struct
{
  const char *source, *row, *machine, *comm, *op, *shape, *format;
  gint64 ranks, ns;
  guint64 line;
} Op;

static void
add_op (CliImport *import, const Op *op)
{
  g_autofree char *created = cli_import_now ();
  g_autofree char *uid = g_strconcat (op->source, " ", op->row, NULL);
  g_autofree char *ranks = g_strdup_printf ("%" G_GINT64_FORMAT, op->ranks);
  g_autofree char *ns = g_strdup_printf ("%" G_GINT64_FORMAT, op->ns);
  const char *const cells[][2]
      = { { "uid", uid },         { "created", created },     { "program_version", "not known" },
          { "host", op->source }, { "machine", op->machine }, { "backend", "cuda" },
          { "comm", op->comm },   { "ranks", ranks },         { "op", op->op },
          { "shape", op->shape }, { "format", op->format },   { "median_ns", ns },
          { "spread_ns", "0" },   { "samples", "1" } };
  cli_import_add (import, TRUE, cells, G_N_ELEMENTS (cells), op->line);
}

static gboolean
round_ns (double ns, const char *what, gint64 *out, GError **error)
{
  *out = ns < 9e18 ? (gint64)(ns + 0.5) : 0;
  if (*out < 1)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: no time follows from it", what);
  return *out >= 1;
}

/* Reads a measured collective. The column bytes is the size as nccl-tests counts it: the bytes of a
 * gather's result, or of what is reduced. */
static gboolean
take_collective (CliImport *self, GHashTable *cells, Op *op, GError **error)
{
  static const char *const known[][2] = { { "all_reduce", "all_reduce" },
                                          { "all_gather", "all_gather" },
                                          { "reduce_scatter", "reduce_scatter" },
                                          { "all_to_all", "all_to_all" },
                                          { "alltoall", "all_to_all" } };
  const char *gpu = cell (cells, "gpu", NULL), *nodes = cell (cells, "nodes", NULL), *name;
  double us, rate;
  gint64 bytes, node_count = 1;
  if (!read_text (cells, "collective", NULL, &name, error)
      || !read_int (cells, "gpus", &op->ranks, error)
      || (nodes && !read_int (cells, "nodes", &node_count, error))
      || !read_real (cells, "time_us", &us, error)
      || !read_real (cells, "algbw_gb_s", &rate, error))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    if (g_str_equal (name, known[i][0]))
      op->op = known[i][1];
  if (!op->op)
    cli_import_skip (self, "no collective that plans have");
  else if (!cell (cells, "bytes", NULL))
    cli_import_skip (self, "the size is not stated");
  else if (us <= 0 && rate <= 0)
    cli_import_skip (self, "neither time nor algorithm bandwidth is stated");
  if (!op->op || !cell (cells, "bytes", NULL) || (us <= 0 && rate <= 0))
    return TRUE;
  if (!read_int (cells, "bytes", &bytes, error)
      || !round_ns (us > 0 ? 1e3 * us : (double)bytes / rate, us > 0 ? "time_us" : "algbw_gb_s",
                    &op->ns, error))
    return FALSE;
  const gboolean is_whole = g_str_equal (op->op, "all_reduce");
  g_autofree char *machine = cli_import_machine (op->ranks, gpu, node_count);
  g_autofree char *shape
      = g_strdup_printf ("count=%" G_GINT64_FORMAT, is_whole ? bytes : bytes / op->ranks);
  op->machine = machine;
  op->shape = shape;
  op->format = "u8";
  op->comm = "nccl";
  add_op (self, op);
  return TRUE;
}

/* The number of a layout in a shape: which factors are stored transposed. */
static gboolean
read_layout (const char *layout, guint *out, GError **error)
{
  static const char *const known[] = { "NN", "TN", "NT" };
  for (*out = 0; *out < G_N_ELEMENTS (known); (*out)++)
    if (g_str_equal (layout, known[*out]))
      return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "layout: \"%s\" is not NN, TN or NT", layout);
  return FALSE;
}

/* Reads a single product out[m, n] of bf16 factors; batched ones are skipped. */
static gboolean
take_product (CliImport *self, GHashTable *cells, Op *op, GError **error)
{
  const char *kind = cell (cells, "op", "kind"), *gpu, *layout = cell (cells, "layout", NULL);
  const char *batch = cell (cells, "batch", NULL), *out = cell (cells, "out_dtype", NULL);
  const char *adds = cell (cells, "accumulate", "accumulates");
  const char *rate_name = cell (cells, "achieved_tflops", NULL) ? "achieved_tflops" : "tflops";
  gint64 m, n, k;
  double tflops;
  guint transposes;
  if (!read_text (cells, "gpu", NULL, &gpu, error))
    return FALSE;
  if (!kind || (!g_str_equal (kind, "matmul") && !g_str_equal (kind, "product")) || !layout
      || (batch && !g_str_equal (batch, "1")))
    {
      cli_import_skip (self, "no single product with a layout");
      return TRUE;
    }
  if (!read_layout (layout, &transposes, error) || !read_int (cells, "m", &m, error)
      || !read_int (cells, "n", &n, error) || !read_int (cells, "k", &k, error)
      || !read_real (cells, rate_name, &tflops, error)
      || !round_ns (tflops > 0 ? 2e-3 * (double)m * (double)n * (double)k / tflops : 0, rate_name,
                    &op->ns, error))
    return FALSE;
  g_autofree char *shape = g_strdup_printf ("m=%" G_GINT64_FORMAT " n=%" G_GINT64_FORMAT
                                            " k=%" G_GINT64_FORMAT " layout=%u",
                                            m, n, k, transposes);
  g_autofree char *format
      = out && !g_str_equal (out, "bf16") ? g_strconcat ("bf16 to ", out, NULL) : g_strdup ("bf16");
  op->op = adds && g_str_equal (adds, "yes") ? "gemm_add" : "gemm";
  op->machine = gpu;
  op->shape = shape;
  op->format = format;
  op->comm = "self";
  op->ranks = 1;
  add_op (self, op);
  return TRUE;
}

gboolean
cli_import_take_op (CliImport *self, GHashTable *cells, guint64 line, GError **error)
{
  Op op = { .line = line };
  if (!read_text (cells, "source", NULL, &op.source, error)
      || !read_text (cells, "row_id", "row", &op.row, error))
    return FALSE;
  return g_str_equal (self->kind, "collectives") ? take_collective (self, cells, &op, error)
                                                 : take_product (self, cells, &op, error);
}
