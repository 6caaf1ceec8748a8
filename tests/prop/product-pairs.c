/* SPDX-License-Identifier: Apache-2.0 */
/* A pairwise covering set of the product: any two values that some plan has together are together
 * in one of the plans chosen here.
 *
 *   product-pairs list        prints them: a number, and what it stands for
 *   product-pairs ranks FILE  prints the numbers of ranks that those in FILE are for
 *   product-pairs run FILE    under an MPI launcher: runs those for as many ranks as there are;
 * each rank compares what it has with the evaluator's. The evaluator plays all ranks, which takes
 * as long as all of them: each rank evaluates its share of the plans, and leaves what it found in
 * files beside FILE. */
#include "config.h"

#include "exec/comm.h"
#include "tests/prop/product.h"
#include "tests/reference/evaluate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES PRODUCT_MAX_VALUES
#define N PRODUCT_N_DIMENSIONS

/* Whether two values are together in what was chosen; the first dimension is the lower one. */
typedef struct
{
  gboolean met[N][MAX_VALUES][N][MAX_VALUES];
} Pairs;

static guint
count_new (const Pairs *self, const guint digits[N])
{
  guint n = 0;
  for (guint a = 0; a < N; a++)
    for (guint b = a + 1; b < N; b++)
      n += !self->met[a][digits[a]][b][digits[b]];
  return n;
}

static void
meet (Pairs *self, const guint digits[N])
{
  for (guint a = 0; a < N; a++)
    for (guint b = a + 1; b < N; b++)
      self->met[a][digits[a]][b][digits[b]] = TRUE;
}

/* The digits of a point, as product_digit gives them one by one. */
static void
split (guint64 point, guint digits[N])
{
  static guint values[N];
  for (ProductDimension d = 0; d < N && values[N - 1] == 0; d++)
    values[d] = product_values (d);
  for (ProductDimension d = N; d-- > 0; point /= values[d])
    digits[d] = (guint)(point % values[d]);
}

/* Chooses points greedily, in passes over the product. A pass takes the points that have at least a
 * certain number of new pairs, which falls from pass to pass. The last pass takes every point with
 * a new pair, so that a pair that is left is in no plan at all. */
static GArray *
choose (void)
{
  GArray *chosen = g_array_new (FALSE, FALSE, sizeof (guint64));
  g_autofree Pairs *pairs = g_new0 (Pairs, 1);
  const guint64 size = product_size (), stride = 7919; /* a prime that is no factor of the size */
  /* A bound on the new pairs of each point, by the order of visits: it only falls as more are met.
   * 0 where the plan is refused. */
  g_autofree guint8 *most = g_malloc (size);
  g_assert (size % stride != 0);
  memset (most, G_MAXUINT8, size);
  for (guint least = N * (N - 1) / 2; least > 0; least = least > 3 ? least * 3 / 4 : least > 1)
    for (guint64 i = 0, point = 0; i < size; i++, point = (point + stride) % size)
      {
        guint digits[N];
        if (most[i] < least)
          continue;
        split (point, digits);
        most[i] = (guint8)count_new (pairs, digits);
        if (most[i] < least)
          continue;
        g_auto (ProductCase) c = { 0 };
        if (!product_case_init (&c, point))
          {
            most[i] = 0;
            continue;
          }
        meet (pairs, digits);
        g_array_append_val (chosen, point);
      }
  return chosen;
}

#define COVERED 7 /* no factor of the product's size, either */

/* Goes over a part of the product once more, without regard to how plans were chosen. */
static gboolean
covers_all (const GArray *chosen)
{
  g_autofree Pairs *pairs = g_new0 (Pairs, 1);
  guint digits[N], found = 0, n = 0;
  for (guint i = 0; i < chosen->len; i++)
    {
      split (g_array_index (chosen, guint64, i), digits);
      meet (pairs, digits);
    }
  for (guint64 point = 0; point < product_size (); point += COVERED)
    {
      g_auto (ProductCase) c = { 0 };
      split (point, digits);
      if (count_new (pairs, digits) > 0 && product_case_init (&c, point))
        return FALSE;
    }
  for (guint a = 0; a < N; a++)
    for (guint b = a + 1; b < N; b++)
      for (guint v = 0; v < product_values (a); v++)
        for (guint w = 0; w < product_values (b); w++)
          {
            found += pairs->met[a][v][b][w];
            n++;
          }
  fprintf (stderr, "%u plans have %u pairs of values; no plan has another of the %u\n", chosen->len,
           found, n);
  return TRUE;
}

static int
list (void)
{
  g_autoptr (GArray) chosen = choose ();
  if (!covers_all (chosen))
    return EXIT_FAILURE;
  for (guint i = 0; i < chosen->len; i++)
    {
      const guint64 point = g_array_index (chosen, guint64, i);
      g_autofree char *name = product_name (point);
      printf ("%" G_GUINT64_FORMAT " %s\n", point, name);
    }
  return EXIT_SUCCESS;
}

static GArray *
read_points (const char *path)
{
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;
  if (!g_file_get_contents (path, &text, NULL, &error))
    g_error ("%s", error->message);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  GArray *points = g_array_new (FALSE, FALSE, sizeof (guint64));
  for (guint i = 0; lines[i]; i++)
    if (*lines[i])
      {
        const guint64 point = g_ascii_strtoull (lines[i], NULL, 10);
        g_array_append_val (points, point);
      }
  return points;
}

static int
print_ranks (const char *path)
{
  g_autoptr (GArray) points = read_points (path);
  for (guint v = 0; v < product_values (PRODUCT_RANKS); v++)
    for (guint i = 0; i < points->len; i++)
      if (product_digit (g_array_index (points, guint64, i), PRODUCT_RANKS) == v)
        {
          printf ("%s\n", product_value_name (PRODUCT_RANKS, v));
          break;
        }
  return EXIT_SUCCESS;
}

static char *
found_path (const char *path, guint64 point)
{
  return g_strdup_printf ("%s.%" G_GUINT64_FORMAT, path, point);
}

/* What product_case_equals compares, one array after the other. */
static gboolean
write_found (const char *path, guint64 point, const ProductCase *c, GError **error)
{
  g_auto (ExecResult) found = { 0 };
  g_autofree char *to = found_path (path, point);
  g_autoptr (GByteArray) bytes = g_byte_array_new ();
  const guint figures = (guint)c->job.steps * (guint)sizeof (double);
  if (!exec_evaluate (&c->job, c->ranks, &found, error))
    return FALSE;
  g_byte_array_append (bytes, (const guint8 *)found.losses, figures);
  g_byte_array_append (bytes, (const guint8 *)found.grad_norms, figures);
  g_byte_array_append (bytes, found.main_params->data, found.main_params->len);
  return g_file_set_contents (to, (const char *)bytes->data, bytes->len, error);
}

static gboolean
read_found (const char *path, guint64 point, const ProductCase *c, ExecResult *out, GError **error)
{
  g_autofree char *from = found_path (path, point), *bytes = NULL;
  const gsize figures = (gsize)c->job.steps * sizeof (double);
  gsize n;
  if (!g_file_get_contents (from, &bytes, &n, error))
    return FALSE;
  g_assert (n > 2 * figures);
  out->losses = g_memdup2 (bytes, figures);
  out->grad_norms = g_memdup2 (bytes + figures, figures);
  out->main_params = g_byte_array_new ();
  g_byte_array_append (out->main_params, (const guint8 *)bytes + 2 * figures,
                       (guint)(n - 2 * figures));
  return TRUE;
}

static gboolean
run_point (ExecComm *comm, const char *path, guint64 point, const ProductCase *c)
{
  g_auto (ExecResult) result = { 0 }, expected = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *name = product_name (point);
  if (exec_run_rank (&c->job, comm, TRUE, NULL, NULL, &result, &error)
      && read_found (path, point, c, &expected, &error)
      && product_case_equals (c, comm->rank, &result, &expected))
    return TRUE;
  printf ("rank %u: %s: not as the evaluator's%s%s\n", comm->rank, name, error ? ": " : "",
          error ? error->message : "");
  return FALSE;
}

/* Goes over the plans for as many ranks as there are: first each rank evaluates its share, then all
 * run them. */
static gboolean
go_over (ExecComm *comm, const char *path, const GArray *points, gboolean is_run, guint *out_n)
{
  gboolean ok = TRUE;
  *out_n = 0;
  for (guint i = 0; ok && i < points->len; i++)
    {
      const guint64 point = g_array_index (points, guint64, i);
      g_autoptr (GError) error = NULL;
      g_auto (ProductCase) c = { 0 };
      g_assert (product_case_init (&c, point));
      if (c.ranks != comm->ranks)
        continue;
      if (is_run)
        ok = run_point (comm, path, point, &c);
      else if (*out_n % comm->ranks == comm->rank)
        ok = write_found (path, point, &c, &error);
      if (error)
        printf ("rank %u: plan %" G_GUINT64_FORMAT ": %s\n", comm->rank, point, error->message);
      ++*out_n;
    }
  return ok;
}

static int
run (const char *path)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) points = read_points (path);
  ExecComm *comm = exec_comm_mpi_open (&error);
  guint n = 0;
  if (!comm)
    {
      fprintf (stderr, "%s\n", error->message);
      return EXIT_FAILURE;
    }
  const gboolean ok = go_over (comm, path, points, FALSE, &n) && comm->ops->barrier (comm, &error)
                      && go_over (comm, path, points, TRUE, &n);
  if (!ok)
    comm->ops->abort (comm, "a plan does not give what the evaluator gives");
  else if (comm->rank == 0)
    printf ("%u plans on %u ranks equal the evaluator\n", n, comm->ranks);
  comm->ops->close (comm);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

int
main (int argc, char **argv)
{
  if (argc == 2 && g_str_equal (argv[1], "list"))
    return list ();
  if (argc == 3 && g_str_equal (argv[1], "ranks"))
    return print_ranks (argv[2]);
  if (argc == 3 && g_str_equal (argv[1], "run"))
    return run (argv[2]);
  fprintf (stderr, "usage: product-pairs list | ranks FILE | run FILE\n");
  return 2;
}
