/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a run reads beside its plan. The text has parts that begin with a line "== NAME": a
 * model, and the header of a file of weights; or a manifest and the header of its checkpoint's only
 * file; or the numbers of an index of tokens. The files are written with as much data as their
 * headers declare, and a true digest. A file that opens is read to its end, and weights are
 * exported. */
#include "config.h"

#include "exec/data/tokens.h"
#include "exec/walk/export.h"
#include "exec/walk/weights.h"
#include "tests/fuzz/accepted.h"

#include <glib/gstdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

#define MOST_BYTES (1 << 16) /* of data */
#define STEP "step-1.0"
#define SEQ 4

static char *folder;

static char *
in_folder (const char *name)
{
  return g_build_filename (folder, name, NULL);
}

static void
remove_all (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  for (const char *name; dir && (name = g_dir_read_name (dir));)
    {
      g_autofree char *inner = g_build_filename (path, name, NULL);
      if (g_unlink (inner) != 0)
        remove_all (inner);
    }
  g_rmdir (path);
}

static void
leave (void)
{
  remove_all (folder);
}

static void
make_folder (void)
{
  g_autofree char *in_memory = g_strdup ("/dev/shm/fuzz-files-XXXXXX");
  folder = g_mkdtemp (in_memory) ? g_steal_pointer (&in_memory)
                                 : g_dir_make_tmp ("fuzz-files-XXXXXX", NULL);
  if (!folder)
    abort ();
  atexit (leave);
}

/* The body of a part, or NULL where there is none; the caller frees. */
static char *
find_part (const char *text, const char *name)
{
  g_autofree char *title = g_strconcat ("== ", name, "\n", NULL);
  const char *at = text;
  while (at && !g_str_has_prefix (at, title))
    at = (at = strstr (at, "\n== ")) ? at + 1 : NULL;
  if (!at)
    return NULL;
  const char *const body = at + strlen (title), *const end = strstr (body - 1, "\n== ");
  return end ? g_strndup (body, (gsize)MAX (end + 1 - body, 0)) : g_strdup (body);
}

static void
write_file (const char *name, const void *data, gsize length)
{
  g_autofree char *path = in_folder (name);
  if (!g_file_set_contents_full (path, data, (gssize)length, G_FILE_SET_CONTENTS_NONE, 0600, NULL))
    abort ();
}

/* The length of the data that a header declares: the largest number in it, up to MOST_BYTES. */
static gsize
find_length (const char *header)
{
  gsize length = 0;
  for (const char *at = header; *at; at++)
    if (g_ascii_isdigit (*at) && (at == header || !g_ascii_isdigit (at[-1])))
      {
        const guint64 value = g_ascii_strtoull (at, NULL, 10);
        if (value <= MOST_BYTES)
          length = MAX (length, (gsize)value);
      }
  return length;
}

/* A file of weights with that header. Its numbers are finite in every format. The caller frees. */
static GByteArray *
make_tensors (const char *header)
{
  GByteArray *all = g_byte_array_new ();
  const guint64 length = GUINT64_TO_LE ((guint64)strlen (header));
  const gsize begin = sizeof length + strlen (header), n = find_length (header);
  g_byte_array_append (all, (const guint8 *)&length, sizeof length);
  g_byte_array_append (all, (const guint8 *)header, (guint)strlen (header));
  g_byte_array_set_size (all, (guint)(begin + n));
  memset (all->data + begin, 0x3c, n);
  return all;
}

static void
read_weights (const ExecWeights *weights, const PlanModel *model)
{
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    {
      const PlanTensor tensor = plan_model_tensor (model, role, model->vocab);
      const guint64 n = plan_model_numel (&tensor);
      if (n == 0 || n > MOST_BYTES)
        continue;
      g_autofree float *values = g_new (float, n);
      g_autoptr (GError) error = NULL;
      if (exec_weights_read (weights, role, 0, 0, n, values, &error) != (error == NULL))
        abort ();
    }
}

static gboolean
try_weights (const PlanModel *model, const char *path)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GError) why = NULL;
  g_autoptr (ExecWeights) weights = exec_weights_open (path, model, &error);
  g_autofree char *out = in_folder ("exported");
  ExecExported exported;
  if ((weights == NULL) != (error != NULL))
    abort ();
  if (!weights)
    return FALSE;
  read_weights (weights, model);
  if (exec_export_hf (weights, model, PLAN_DTYPE_BF16, 1 << 20, out, &exported, &why)
      != (why == NULL))
    abort ();
  return TRUE;
}

static gboolean
try_model (const char *dims, const char *header)
{
  g_autoptr (PlanModel) model
      = strchr (dims, '/') ? NULL : plan_model_new (g_strstrip ((char *)dims), NULL);
  g_autoptr (GByteArray) file = make_tensors (header);
  if (!model || plan_model_parameters (model) > MOST_BYTES)
    return FALSE;
  write_file ("model.safetensors", file->data, file->len);
  return try_weights (model, folder);
}

static gboolean
try_checkpoint (const char *manifest, const char *header)
{
  g_autoptr (GByteArray) file = make_tensors (header);
  g_autofree char *digest = g_compute_checksum_for_data (G_CHECKSUM_SHA256, file->data, file->len);
  g_autofree char *all
      = g_strdup_printf ("%s\n[files]\nrank-0.safetensors=%u %s\n", manifest, file->len, digest);
  g_autofree char *inner = in_folder (STEP);
  g_autoptr (GError) error = NULL;
  g_mkdir (inner, 0700);
  write_file (STEP "/rank-0.safetensors", file->data, file->len);
  write_file ("manifest", all, strlen (all));
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, NULL, &error);
  if ((checkpoint == NULL) != (error != NULL))
    abort ();
  g_autoptr (PlanModel) model = checkpoint ? exec_checkpoint_model (checkpoint, NULL) : NULL;
  return model && plan_model_parameters (model) <= MOST_BYTES && try_weights (model, folder);
}

/* An index of tokens. The texts are numbers: lengths of sequences, and how many sequences there are
 * up to the end of each document. */
static GByteArray *
make_index (const char *lengths, const char *documents, guint64 *out_tokens)
{
  GByteArray *all = g_byte_array_new ();
  g_auto (GStrv) length = g_strsplit_set (lengths, " \n", -1);
  g_auto (GStrv) document = g_strsplit_set (documents, " \n", -1);
  g_autoptr (GByteArray) pointers = g_byte_array_new ();
  g_autoptr (GByteArray) ends = g_byte_array_new ();
  guint64 counts[2] = { 0 }, at = 0;
  const guint64 version = 1;
  const guint8 uint16 = 8;
  g_autoptr (GByteArray) sizes = g_byte_array_new ();
  for (char **word = length; *word; word++)
    if (**word)
      {
        const gint32 n = (gint32)g_ascii_strtoll (*word, NULL, 10);
        g_byte_array_append (sizes, (const guint8 *)&n, sizeof n);
        g_byte_array_append (pointers, (const guint8 *)&at, sizeof at);
        at += 2 * (guint64)n;
        counts[0]++;
      }
  for (char **word = document; *word; word++)
    if (**word)
      {
        const gint64 n = g_ascii_strtoll (*word, NULL, 10);
        g_byte_array_append (ends, (const guint8 *)&n, sizeof n);
        counts[1]++;
      }
  g_byte_array_append (all, (const guint8 *)"MMIDIDX\0\0", 9);
  g_byte_array_append (all, (const guint8 *)&version, sizeof version);
  g_byte_array_append (all, &uint16, 1);
  g_byte_array_append (all, (const guint8 *)counts, sizeof counts);
  g_byte_array_append (all, sizes->data, sizes->len);
  g_byte_array_append (all, pointers->data, pointers->len);
  g_byte_array_append (all, ends->data, ends->len);
  *out_tokens = at / 2;
  return all;
}

static gboolean
read_tokens (const ExecTokens *tokens, guint64 n)
{
  ExecOrder *order = exec_order_new (tokens, 1, 0, 0);
  gint32 read[SEQ], targets[SEQ], places[SEQ];
  for (guint64 first = 0; first < n; first += SEQ)
    {
      g_autoptr (GError) error = NULL;
      if (exec_tokens_read (tokens, NULL, first, read, targets, &error) != (error == NULL))
        abort ();
      exec_tokens_places (tokens, NULL, first, places);
      if (order && !exec_tokens_read (tokens, order, first, read, targets, NULL))
        abort ();
      if (order)
        exec_tokens_places (tokens, order, first, places);
      for (guint i = 0; i < SEQ; i++)
        if (places[i] < 0 || places[i] >= SEQ)
          abort ();
    }
  if (order)
    exec_order_unref (order);
  return exec_tokens_mean_document (tokens) >= 0;
}

static gboolean
try_tokens (const char *lengths, const char *documents)
{
  guint64 n = 0;
  g_autoptr (GByteArray) index = make_index (lengths, documents, &n);
  g_autofree guint8 *zeros = g_malloc0 (2 * MOST_BYTES);
  g_autofree char *path = in_folder ("tokens");
  g_autoptr (GError) error = NULL;
  write_file ("tokens.idx", index->data, index->len);
  write_file ("tokens.bin", zeros, 2 * MIN (n, MOST_BYTES));
  g_autoptr (ExecTokens) tokens = exec_tokens_open (path, 16, SEQ, &error);
  if ((tokens == NULL) != (error != NULL))
    abort ();
  return tokens && read_tokens (tokens, n);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autofree char *dims = find_part (text, "dims"), *header = find_part (text, "header"),
                  *manifest = find_part (text, "manifest"), *lengths = find_part (text, "lengths"),
                  *documents = find_part (text, "documents");
  if (folder)
    remove_all (folder);
  else
    make_folder ();
  if (g_mkdir_with_parents (folder, 0700) != 0)
    abort ();
  fuzz_count (dims && header         ? try_model (dims, header)
              : manifest && header   ? try_checkpoint (manifest, header)
              : lengths && documents ? try_tokens (lengths, documents)
                                     : FALSE);
  return 0;
}
