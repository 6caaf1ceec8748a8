/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/algos.h"

#include "exec/cuda/lt.h"
#include "planner/base/dtype.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* NVIDIA documents cublasLtMatmulAlgo_t as plain bytes that may be stored, and used again with the
 * same version of the library. */
#define ALGO_BYTES (sizeof (cublasLtMatmulAlgo_t))

G_STATIC_ASSERT (sizeof (ExecCudaProduct) == 48);

static GMutex mutex;
static GHashTable *known; /* ExecCudaProduct -> cublasLtMatmulAlgo_t; NULL until the file is read */
static char *path;        /* of the file; NULL: there is nowhere to keep it */

guint
exec_cuda_product_hash (gconstpointer product)
{
  return exec_cuda_lt_hash (product, sizeof (ExecCudaProduct));
}

gboolean
exec_cuda_product_equal (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (ExecCudaProduct)) == 0;
}

char *
exec_cuda_algos_print (const ExecCudaProduct *product, const cublasLtMatmulAlgo_t *algo)
{
  const guint8 *d = product->dtype, *a = product->alignment;
  const guint8 *bytes = (const guint8 *)algo;
  GString *line = g_string_new (NULL);
  g_string_printf (line,
                   "%" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %" G_GINT64_FORMAT
                   " %u %u %u %u %s %s %s %s %u %u %u %u ",
                   product->m, product->n, product->k, product->workspace_mib, product->sms,
                   product->layout, product->accumulates, plan_dtype_name (d[0]),
                   plan_dtype_name (d[1]), plan_dtype_name (d[2]),
                   d[3] < PLAN_N_DTYPES ? plan_dtype_name (d[3]) : "-", a[0], a[1], a[2], a[3]);
  for (guint i = 0; i < ALGO_BYTES; i++)
    g_string_append_printf (line, "%02x", bytes[i]);
  return g_string_free (line, FALSE);
}

static gboolean
parse_dtype (const char *text, guint8 *out)
{
  PlanDtype dtype;
  if (g_str_equal (text, "-"))
    *out = PLAN_N_DTYPES;
  else if (plan_dtype_parse (text, "", &dtype, NULL))
    *out = (guint8)dtype;
  else
    return FALSE;
  return TRUE;
}

static gboolean
parse_algo (const char *hex, cublasLtMatmulAlgo_t *out)
{
  guint8 *bytes = (guint8 *)out;
  if (strlen (hex) != 2 * ALGO_BYTES)
    return FALSE;
  for (guint i = 0; i < ALGO_BYTES; i++)
    {
      const int high = g_ascii_xdigit_value (hex[2 * i]);
      const int low = g_ascii_xdigit_value (hex[2 * i + 1]);
      if (high < 0 || low < 0)
        return FALSE;
      bytes[i] = (guint8)(16 * high + low);
    }
  return TRUE;
}

gboolean
exec_cuda_algos_parse (const char *line, ExecCudaProduct *out_product,
                       cublasLtMatmulAlgo_t *out_algo)
{
  enum
  {
    FIRST_DTYPE = 7,
    FIRST_ALIGNMENT = 11,
    ALGO = 15,
    WORDS
  };
  static const guint64 most[]
      = { G_MAXINT64, G_MAXINT64, G_MAXINT64, G_MAXUINT32, G_MAXUINT16, 2, 1 };
  g_auto (GStrv) word = g_strsplit (line, " ", -1);
  ExecCudaProduct product = { 0 };
  guint64 number[FIRST_DTYPE], alignment;
  if (g_strv_length (word) != WORDS)
    return FALSE;
  for (guint i = 0; i < FIRST_DTYPE; i++)
    if (!g_ascii_string_to_unsigned (word[i], 10, 0, most[i], &number[i], NULL))
      return FALSE;
  for (guint i = 0; i < 4; i++)
    {
      if (!parse_dtype (word[FIRST_DTYPE + i], &product.dtype[i])
          || !g_ascii_string_to_unsigned (word[FIRST_ALIGNMENT + i], 10, 0, 128, &alignment, NULL))
        return FALSE;
      product.alignment[i] = (guint8)alignment;
    }
  product.m = (gint64)number[0];
  product.n = (gint64)number[1];
  product.k = (gint64)number[2];
  product.workspace_mib = (guint32)number[3];
  product.sms = (guint16)number[4];
  product.layout = (guint8)number[5];
  product.accumulates = (guint8)number[6];
  if (!parse_algo (word[ALGO], out_algo))
    return FALSE;
  *out_product = product;
  return TRUE;
}

/* The path of the file of algorithms for this model of GPU and this version of cuBLASLt; NULL if
 * there is nowhere to keep it. The caller frees. */
static char *
file_name (void)
{
  struct cudaDeviceProp properties;
  int device;
  if (cudaGetDevice (&device) != cudaSuccess
      || cudaGetDeviceProperties (&properties, device) != cudaSuccess)
    return NULL;
  g_autofree char *gpu = g_strcanon (g_ascii_strdown (properties.name, -1),
                                     "abcdefghijklmnopqrstuvwxyz0123456789.", '-');
  g_autofree char *name = g_strdup_printf ("gemm-%s-%zu.txt", gpu, cublasLtGetVersion ());
  g_autofree char *folder = g_build_filename (g_get_user_data_dir (), "fsdplan", NULL);
  if (g_mkdir_with_parents (folder, 0777) != 0)
    return NULL;
  return g_build_filename (folder, name, NULL);
}

static void
keep (const ExecCudaProduct *product, const cublasLtMatmulAlgo_t *algo)
{
  g_hash_table_replace (known, g_memdup2 (product, sizeof *product), g_memdup2 (algo, ALGO_BYTES));
}

/* Reads the file unless it was read before. The caller holds the mutex. */
static void
read_file (void)
{
  g_autofree char *text = NULL;
  if (known)
    return;
  known = g_hash_table_new_full (exec_cuda_product_hash, exec_cuda_product_equal, g_free, g_free);
  path = file_name ();
  if (!path || !g_file_get_contents (path, &text, NULL, NULL))
    return;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (char **line = lines; *line; line++)
    {
      ExecCudaProduct product;
      cublasLtMatmulAlgo_t algo;
      if (exec_cuda_algos_parse (*line, &product, &algo))
        keep (&product, &algo);
    }
}

gboolean
exec_cuda_algos_find (const ExecCudaProduct *product, cublasLtMatmulAlgo_t *out_algo)
{
  g_mutex_lock (&mutex);
  read_file ();
  const cublasLtMatmulAlgo_t *found = g_hash_table_lookup (known, product);
  if (found)
    *out_algo = *found;
  g_mutex_unlock (&mutex);
  return found != NULL;
}

/* Keeps the algorithm in memory and appends it to the file. A file that cannot be written to is no
 * error: the next run times the algorithms again. */
void
exec_cuda_algos_add (const ExecCudaProduct *product, const cublasLtMatmulAlgo_t *algo)
{
  g_autofree char *text = exec_cuda_algos_print (product, algo);
  g_autofree char *line = g_strconcat (text, "\n", NULL);
  g_mutex_lock (&mutex);
  read_file ();
  keep (product, algo);
  const int fd = path ? open (path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
  if (fd >= 0 && write (fd, line, strlen (line)) < 0)
    g_debug ("%s: cannot be written to", path);
  if (fd >= 0)
    close (fd);
  g_mutex_unlock (&mutex);
}
