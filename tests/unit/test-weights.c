/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/data/data.h"
#include "exec/number/number.h"
#include "exec/walk/export.h"
#include "exec/walk/tensor-file.h"
#include "exec/walk/weights.h"
#include "planner/base/error.h"
#include "planner/model/preset.h"

#include <check.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *folder;

static void
make_folder (void)
{
  folder = g_dir_make_tmp ("test-weights-XXXXXX", NULL);
}

static void
remove_all (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *inner = g_build_filename (path, name, NULL);
      if (g_file_test (inner, G_FILE_TEST_IS_DIR))
        remove_all (inner);
      else
        g_unlink (inner);
    }
  g_rmdir (path);
}

static void
remove_folder (void)
{
  remove_all (folder);
  g_free (folder);
}

/* A file of weights that is being built. Every element is a different number: 1000 times the
 * tensor's number, plus row and column by tens, which half precision represents exactly, too. */
typedef struct
{
  GString *header;
  GByteArray *data;
} File;

static float
element (guint tensor, guint row, guint col)
{
  return (float)(100 * tensor + 10 * row + col);
}

static void
add (File *self, const char *name, PlanDtype dtype, guint tensor, guint rows, guint cols)
{
  const guint begin = self->data->len;
  for (guint r = 0; r < rows; r++)
    for (guint c = 0; c < MAX (cols, 1); c++)
      {
        const float value = element (tensor, r, c);
        guint32 bits = 0;
        if (exec_tensor_file_is_readable (dtype))
          exec_number_narrow (&bits, dtype, &value, 1);
        g_byte_array_append (self->data, (const guint8 *)&bits, (guint)plan_dtype_bytes (dtype, 1));
      }
  g_autofree char *shape
      = cols ? g_strdup_printf ("%u,%u", rows, cols) : g_strdup_printf ("%u", rows);
  g_string_append_printf (self->header,
                          ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%u,%u]}",
                          name, plan_safetensors_dtype_name (dtype), shape, begin, self->data->len);
}

static void
file_begin (File *self)
{
  self->header = g_string_new ("{\"__metadata__\":{\"format\":\"pt\"}");
  self->data = g_byte_array_new ();
}

static void
file_end (File *self, const char *name)
{
  g_autofree char *path = g_build_filename (folder, name, NULL);
  g_autoptr (GByteArray) all = g_byte_array_new ();
  g_string_append_c (self->header, '}');
  const guint64 length = GUINT64_TO_LE ((guint64)self->header->len);
  g_byte_array_append (all, (const guint8 *)&length, sizeof length);
  g_byte_array_append (all, (const guint8 *)self->header->str, (guint)self->header->len);
  g_byte_array_append (all, self->data->data, self->data->len);
  ck_assert (g_file_set_contents (path, (const char *)all->data, all->len, NULL));
  g_string_free (self->header, TRUE);
  g_byte_array_unref (self->data);
}

#define LLAMA "family=llama,layers=1,hidden=4,ffn=3,heads=2,kv_heads=1,head_dim=2,vocab=5,max_seq=8"
#define GPT2 "family=gpt2,layers=1,hidden=4,ffn=3,heads=2,kv_heads=2,head_dim=2,vocab=5,max_seq=8"

static void
write_llama (PlanDtype dtype, guint vocab)
{
  File file;
  file_begin (&file);
  add (&file, "model.embed_tokens.weight", dtype, 1, vocab, 4);
  add (&file, "model.layers.0.input_layernorm.weight", dtype, 2, 4, 0);
  add (&file, "model.layers.0.self_attn.q_proj.weight", dtype, 3, 4, 4);
  add (&file, "model.layers.0.self_attn.k_proj.weight", dtype, 4, 2, 4);
  add (&file, "model.layers.0.self_attn.v_proj.weight", dtype, 5, 2, 4);
  add (&file, "model.layers.0.self_attn.o_proj.weight", dtype, 6, 4, 4);
  file_end (&file, "model-00001-of-00002.safetensors");
  file_begin (&file);
  add (&file, "model.layers.0.post_attention_layernorm.weight", dtype, 7, 4, 0);
  add (&file, "model.layers.0.mlp.gate_proj.weight", dtype, 8, 3, 4);
  add (&file, "model.layers.0.mlp.up_proj.weight", dtype, 9, 3, 4);
  add (&file, "model.layers.0.mlp.down_proj.weight", dtype, 10, 4, 3);
  add (&file, "model.norm.weight", dtype, 11, 4, 0);
  add (&file, "lm_head.weight", dtype, 12, 5, 4);
  file_end (&file, "model-00002-of-00002.safetensors");
}

/* Reads a parameter whole and in pieces of every size. */
static void
check (const ExecWeights *weights, PlanTensorRole role, guint count, const float *want)
{
  float got[64];
  for (guint piece = 1; piece <= count; piece++)
    {
      for (guint at = 0; at < count; at += piece)
        ck_assert (
            exec_weights_read (weights, role, 0, at, MIN (piece, count - at), got + at, NULL));
      for (guint i = 0; i < count; i++)
        ck_assert_msg (got[i] == want[i], "role %d: element %u is %g, not %g", role, i,
                       (double)got[i], (double)want[i]);
    }
}

/* Checks stacked matrices, row by row. */
static void
check_stacked (const ExecWeights *weights, PlanTensorRole role, guint cols, guint n,
               const guint (*parts)[2])
{
  float want[64];
  guint count = 0;
  for (guint p = 0; p < n; p++)
    for (guint row = 0; row < parts[p][1]; row++)
      for (guint col = 0; col < cols; col++)
        want[count++] = element (parts[p][0], row, col);
  check (weights, role, count, want);
}

START_TEST (llama_is_read)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (LLAMA, &error);
  write_llama ((PlanDtype[]){ PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, PLAN_DTYPE_FP16 }[_i], 5);
  g_autoptr (ExecWeights) weights = exec_weights_open (folder, model, &error);
  ck_assert_msg (weights != NULL, "%s", error ? error->message : "");
  if (_i == 1) /* eight bits cannot hold these numbers */
    return;
  check_stacked (weights, PLAN_TENSOR_EMBEDDING, 4, 1, (const guint[][2]){ { 1, 5 } });
  check_stacked (weights, PLAN_TENSOR_QKV, 4, 3,
                 (const guint[][2]){ { 3, 4 }, { 4, 2 }, { 5, 2 } });
  check_stacked (weights, PLAN_TENSOR_PROJ, 4, 1, (const guint[][2]){ { 6, 4 } });
  check_stacked (weights, PLAN_TENSOR_MLP_NORM, 1, 1, (const guint[][2]){ { 7, 4 } });
  check_stacked (weights, PLAN_TENSOR_GATE_UP, 4, 2, (const guint[][2]){ { 8, 3 }, { 9, 3 } });
  check_stacked (weights, PLAN_TENSOR_DOWN, 3, 1, (const guint[][2]){ { 10, 4 } });
  check_stacked (weights, PLAN_TENSOR_OUTPUT, 4, 1, (const guint[][2]){ { 12, 5 } });
}
END_TEST

/* Conv1D keeps [inputs, outputs]. */
static void
write_gpt2 (const char *prefix)
{
  static const char *const vectors[]
      = { "h.0.ln_1.weight", "h.0.ln_1.bias",      "h.0.attn.c_proj.bias",
          "h.0.ln_2.weight", "h.0.ln_2.bias",      "ln_f.weight",
          "ln_f.bias",       "h.0.mlp.c_proj.bias" };
  File file;
  file_begin (&file);
#define ADD(name, ...) \
  G_STMT_START \
  { \
    g_autofree char *full = g_strconcat (prefix, name, NULL); \
    add (&file, full, PLAN_DTYPE_FP32, __VA_ARGS__); \
  } \
  G_STMT_END
  ADD ("wte.weight", 1, 5, 4);
  ADD ("wpe.weight", 2, 8, 4);
  ADD ("h.0.attn.c_attn.weight", 3, 4, 12);
  ADD ("h.0.attn.c_attn.bias", 4, 12, 0);
  ADD ("h.0.attn.c_proj.weight", 5, 4, 4);
  ADD ("h.0.mlp.c_fc.weight", 6, 4, 3);
  ADD ("h.0.mlp.c_fc.bias", 7, 3, 0);
  ADD ("h.0.mlp.c_proj.weight", 8, 3, 4);
  for (guint i = 0; i < G_N_ELEMENTS (vectors); i++)
    ADD (vectors[i], 9 + i, 4, 0);
  file_end (&file, "model.safetensors");
}

START_TEST (gpt2_is_read)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (GPT2, &error);
  float want[48];
  write_gpt2 (_i ? "transformer." : "");
  g_autoptr (ExecWeights) weights = exec_weights_open (folder, model, &error);
  ck_assert_msg (weights != NULL, "%s", error ? error->message : "");
  check_stacked (weights, PLAN_TENSOR_POSITIONS, 4, 1, (const guint[][2]){ { 2, 8 } });
  check_stacked (weights, PLAN_TENSOR_QKV_BIAS, 1, 1, (const guint[][2]){ { 4, 12 } });
  for (guint row = 0; row < 12; row++)
    for (guint col = 0; col < 4; col++)
      want[4 * row + col] = element (3, col, row);
  check (weights, PLAN_TENSOR_QKV, 48, want);
  for (guint row = 0; row < 4; row++)
    for (guint col = 0; col < 3; col++)
      want[3 * row + col] = element (8, col, row);
  check (weights, PLAN_TENSOR_DOWN, 12, want);
}
END_TEST

/* --- out again ----------------------------------------------------------------------------- */

/* Reads the tensors of a folder by the format's definition: by name "FORMAT SHAPE BYTES"; `files`
 * gets the file of each. */
static GHashTable *
read_folder (const char *path, GHashTable *files)
{
  GHashTable *found = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *file;
  while ((file = g_dir_read_name (dir)))
    {
      g_autofree char *full = g_build_filename (path, file, NULL), *bytes = NULL;
      g_autoptr (JsonParser) parser = json_parser_new ();
      guint64 length;
      gsize size;
      if (!g_str_has_suffix (file, ".safetensors"))
        continue;
      ck_assert (g_file_get_contents (full, &bytes, &size, NULL));
      memcpy (&length, bytes, 8);
      ck_assert (json_parser_load_from_data (parser, bytes + 8, (gssize)length, NULL));
      JsonObject *root = json_node_get_object (json_parser_get_root (parser));
      ck_assert_str_eq (json_object_get_string_member (
                            json_object_get_object_member (root, "__metadata__"), "format"),
                        "pt");
      json_object_remove_member (root, "__metadata__");
      g_autoptr (GList) names = json_object_get_members (root);
      for (GList *at = names; at; at = at->next)
        {
          JsonObject *tensor = json_object_get_object_member (root, at->data);
          JsonArray *offsets = json_object_get_array_member (tensor, "data_offsets");
          const gint64 begin = json_array_get_int_element (offsets, 0);
          const gint64 end = json_array_get_int_element (offsets, 1);
          g_autofree char *shape = json_to_string (json_object_get_member (tensor, "shape"), FALSE);
          g_autofree char *data
              = g_base64_encode ((guchar *)bytes + 8 + length + begin, (gsize)(end - begin));
          char *all
              = g_strjoin (" ", json_object_get_string_member (tensor, "dtype"), shape, data, NULL);
          ck_assert_uint_le ((gsize)end, size - 8 - length);
          ck_assert (g_hash_table_insert (found, g_strdup (at->data), all));
          g_hash_table_insert (files, g_strdup (at->data), g_strdup (file));
        }
    }
  return found;
}

/* Checks that where there are several files the index has each tensor's. */
static void
check_index (const char *path, GHashTable *files, gboolean is_divided)
{
  g_autofree char *index = g_build_filename (path, "model.safetensors.index.json", NULL);
  g_autoptr (JsonParser) parser = json_parser_new ();
  GHashTableIter iter;
  gpointer name, file;
  ck_assert_int_eq (json_parser_load_from_file (parser, index, NULL), is_divided);
  JsonObject *map = is_divided ? json_object_get_object_member (
                        json_node_get_object (json_parser_get_root (parser)), "weight_map")
                               : NULL;
  g_hash_table_iter_init (&iter, files);
  while (g_hash_table_iter_next (&iter, &name, &file))
    ck_assert_str_eq (map ? json_object_get_string_member (map, name) : "model.safetensors", file);
  ck_assert_uint_eq (map ? json_object_get_size (map) : g_hash_table_size (files),
                     g_hash_table_size (files));
}

/* The tensors that were read are written again, to one file or to several. */
START_TEST (what_is_read_is_written)
{
  const gboolean is_gpt2 = _i % 2, is_divided = _i / 2;
  g_autoptr (PlanModel) model = plan_model_new (is_gpt2 ? GPT2 : LLAMA, NULL);
  g_autofree char *out = g_build_filename (folder, "out", NULL);
  g_autoptr (GHashTable) before = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  g_autoptr (GHashTable) after = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  g_autoptr (GError) error = NULL;
  ExecExported done;
  if (is_gpt2)
    write_gpt2 ("transformer.");
  else
    write_llama (PLAN_DTYPE_FP32, 5);
  g_autoptr (ExecWeights) weights = exec_weights_open (folder, model, NULL);
  ck_assert_msg (
      exec_export_hf (weights, model, PLAN_DTYPE_FP32, is_divided ? 100 : 5000, out, &done, &error),
      "%s", error ? error->message : "");
  g_autoptr (GHashTable) wanted = read_folder (folder, before);
  g_autoptr (GHashTable) found = read_folder (out, after);
  GHashTableIter iter;
  gpointer name, value;
  g_hash_table_iter_init (&iter, wanted);
  while (g_hash_table_iter_next (&iter, &name, &value))
    {
      ck_assert_msg (g_hash_table_contains (found, name), "no %s", (char *)name);
      ck_assert_str_eq (g_hash_table_lookup (found, name), value);
    }
  ck_assert_uint_eq (g_hash_table_size (found), g_hash_table_size (wanted));
  ck_assert_uint_eq (done.tensors, g_hash_table_size (wanted));
  ck_assert_int_eq (done.files > 1, is_divided);
  check_index (out, after, is_divided);
}
END_TEST

/* A file is not kept if it could not be written: it has a number that half precision does not. */
START_TEST (halves_that_overflow_are_refused)
{
  g_autoptr (PlanModel) model = plan_model_new (LLAMA, NULL);
  g_autofree char *out = g_build_filename (folder, "out", NULL);
  g_autoptr (GError) error = NULL;
  ExecExported done;
  File file;
  write_llama (PLAN_DTYPE_FP32, 5);
  g_autofree char *path = g_build_filename (folder, "model-00002-of-00002.safetensors", NULL);
  g_unlink (path);
  file_begin (&file);
  add (&file, "model.layers.0.post_attention_layernorm.weight", PLAN_DTYPE_FP32, 7, 4, 0);
  add (&file, "model.layers.0.mlp.gate_proj.weight", PLAN_DTYPE_FP32, 8, 3, 4);
  add (&file, "model.layers.0.mlp.up_proj.weight", PLAN_DTYPE_FP32, 9, 3, 4);
  add (&file, "model.layers.0.mlp.down_proj.weight", PLAN_DTYPE_FP32, 10, 4, 3);
  add (&file, "model.norm.weight", PLAN_DTYPE_FP32, 655, 4, 0); /* 65500, ..., 65530 */
  add (&file, "lm_head.weight", PLAN_DTYPE_FP32, 12, 5, 4);
  file_end (&file, "model-00002-of-00002.safetensors");
  g_autoptr (ExecWeights) weights = exec_weights_open (folder, model, NULL);
  ck_assert (!exec_export_hf (weights, model, PLAN_DTYPE_FP16, 5000, out, &done, &error));
  ck_assert_str_eq (
      error->message,
      "model.norm.weight has the number 65520, and the largest of fp16 is 65504: take "
      "bf16 or fp32");
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  guint left = 0;
  while (g_dir_read_name (dir))
    left++;
  ck_assert_uint_eq (left, 2);
  ck_assert (exec_export_hf (weights, model, PLAN_DTYPE_BF16, 5000, out, &done, NULL));
}
END_TEST

static void
assert_refused (const PlanModel *model, const char *message)
{
  g_autoptr (GError) error = NULL;
  ck_assert (!exec_weights_open (folder, model, &error));
  ck_assert_msg (strstr (error->message, message) != NULL, "%s", error->message);
}

START_TEST (other_models_are_refused)
{
  g_autoptr (PlanModel) model = plan_model_new (LLAMA, NULL);
  g_autoptr (PlanModel) deeper = plan_model_new (
      "family=llama,layers=2,hidden=4,ffn=3,heads=2,kv_heads=1,head_dim=2,vocab=5,max_seq=8", NULL);
  g_autoptr (PlanModel) wider = plan_model_new (
      "family=llama,layers=1,hidden=6,ffn=3,heads=2,kv_heads=1,head_dim=2,vocab=5,max_seq=8", NULL);
  g_autofree char *path = g_build_filename (folder, "model-00002-of-00002.safetensors", NULL);
  assert_refused (model, "no .safetensors file is here");
  write_llama (PLAN_DTYPE_FP32, 5);
  assert_refused (
      deeper,
      "no tensor model.layers.1.input_layernorm.weight, which the model's attention_norm needs");
  assert_refused (wider, "has the shape [5, 4]; of this model it has [5, 6]");
  write_llama (PLAN_DTYPE_FP32, 7);
  assert_refused (model, "embed_tokens.weight has the shape [7, 4]; of this model it has [5, 4]");
  write_llama (PLAN_DTYPE_I32, 5);
  assert_refused (model, "is in a number format that is not read: F32, BF16 and F16 are");
  write_llama (PLAN_DTYPE_FP32, 5);
  GStatBuf status;
  ck_assert_int_eq (g_stat (path, &status), 0);
  ck_assert_int_eq (truncate (path, status.st_size - 1), 0);
  assert_refused (model, "the file is truncated");
  ck_assert_int_eq (truncate (path, 40), 0);
  assert_refused (model, "not a safetensors file, or truncated");
  ck_assert_int_eq (truncate (path, 3), 0);
  assert_refused (model, "3 bytes are no safetensors file");
}
END_TEST

/* Biases that the config excludes, another layer, a scale beside quantised weights: each message
 * says that the files are those of another model. */
START_TEST (tensors_that_nothing_reads_are_refused)
{
  static const struct
  {
    const char *tensor, *message;
  } more[] = {
    { "model.layers.0.self_attn.q_proj.bias",
      "the model has nothing for the tensor model.layers.0.self_attn.q_proj.bias: " },
    { "model.layers.1.input_layernorm.weight", "these weights are of another model" },
    { "model.layers.0.mlp.up_proj.weight_scale_inv",
      "model.layers.0.mlp.up_proj.weight_scale_inv" },
    { "model.layers.0.self_attn.rotary_emb.inv_freq", NULL },
  };
  g_autoptr (PlanModel) model = plan_model_new (LLAMA, NULL);
  File file;
  write_llama (PLAN_DTYPE_FP32, 5);
  file_begin (&file);
  add (&file, more[_i].tensor, PLAN_DTYPE_FP32, 1, 4, 0);
  file_end (&file, "model-00003-of-00002.safetensors");
  if (more[_i].message)
    assert_refused (model, more[_i].message);
  else
    {
      g_autoptr (ExecWeights) weights = exec_weights_open (folder, model, NULL);
      ck_assert (weights != NULL);
    }
}
END_TEST

/* Random weights depend on their place, not on how many are made at once; gains are 1, and weights
 * that write to the residual are smaller. */
START_TEST (random_ones_are_of_their_place)
{
  g_autoptr (PlanModel) model = plan_model_new_preset ("llama-tiny", NULL);
  float all[100], part[37];
  double sizes[2] = { 0 };
  for (guint r = 0; r < 2; r++)
    {
      const PlanTensorRole role = r ? PLAN_TENSOR_DOWN : PLAN_TENSOR_QKV;
      exec_data_weights (7, model, role, 1, 1000, G_N_ELEMENTS (all), all);
      exec_data_weights (7, model, role, 1, 1040, G_N_ELEMENTS (part), part);
      ck_assert_mem_eq (part, all + 40, sizeof part);
      for (guint i = 0; i < G_N_ELEMENTS (all); i++)
        sizes[r] += fabs ((double)all[i]);
    }
  ck_assert_double_lt (sizes[1], sizes[0]);
  exec_data_weights (7, model, PLAN_TENSOR_ATTENTION_NORM, 1, 3, 1, part);
  ck_assert_float_eq (part[0], 1);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("weights");
  TCase *tcase = tcase_create ("folder");
  tcase_add_checked_fixture (tcase, make_folder, remove_folder);
  tcase_add_loop_test (tcase, llama_is_read, 0, 3);
  tcase_add_loop_test (tcase, gpt2_is_read, 0, 2);
  tcase_add_loop_test (tcase, what_is_read_is_written, 0, 4);
  tcase_add_test (tcase, halves_that_overflow_are_refused);
  tcase_add_test (tcase, other_models_are_refused);
  tcase_add_loop_test (tcase, tensors_that_nothing_reads_are_refused, 0, 4);
  tcase_add_test (tcase, random_ones_are_of_their_place);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
