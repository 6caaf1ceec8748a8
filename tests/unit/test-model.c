/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/error.h"
#include "planner/model.h"

#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TINY "layers=4,hidden=64,ffn=176,heads=4,kv_heads=2,head_dim=16,vocab=256,max_seq=128"

static const struct
{
  const char *name;
  guint64 parameters;
} published[] = {
  { "llama2-7b", G_GUINT64_CONSTANT (6738415616) },
  { "llama2-13b", G_GUINT64_CONSTANT (13015864320) },
  { "llama2-70b", G_GUINT64_CONSTANT (68976648192) },
  { "llama3-8b", G_GUINT64_CONSTANT (8030261248) },
  { "llama3-70b", G_GUINT64_CONSTANT (70553706496) },
  { "llama3.1-405b", G_GUINT64_CONSTANT (405853388800) },
  { "llama3.2-1b", G_GUINT64_CONSTANT (1235814400) },
  { "llama3.2-3b", G_GUINT64_CONSTANT (3212749824) },
  { "mistral-7b", G_GUINT64_CONSTANT (7241732096) },
};

START_TEST (parameters_are_the_published_ones)
{
  g_autoptr (PlanModel) model = plan_model_new (published[_i].name, NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_str_eq (model->name, published[_i].name);
  ck_assert_uint_eq (plan_model_parameters (model), published[_i].parameters);
}
END_TEST

START_TEST (every_preset_is_sound)
{
  for (const char *const *name = plan_model_presets (); *name; name++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanModel) model = plan_model_new_preset (*name, &error);
      ck_assert_msg (model != NULL, "%s", error ? error->message : "");
      ck_assert (plan_model_check (model, NULL));
    }
}
END_TEST

START_TEST (preset_order_is_fixed)
{
  const char *const *names = plan_model_presets ();
  ck_assert_str_eq (names[0], "llama-tiny");
  ck_assert_str_eq (names[1], "llama-100m");
  ck_assert_uint_eq (g_strv_length ((GStrv)names), 11);
}
END_TEST

/* Sum over the tensors is the count: two ways to say the same. */
START_TEST (tensors_sum_to_parameters)
{
  for (const char *const *name = plan_model_presets (); *name; name++)
    {
      g_autoptr (PlanModel) model = plan_model_new_preset (*name, NULL);
      guint64 sum = 0;
      for (guint role = 0; role < PLAN_N_TENSORS; role++)
        {
          const PlanTensor t = plan_model_tensor (model, role, model->vocab);
          const gboolean in_layer = role >= PLAN_TENSOR_ATTENTION_NORM && role <= PLAN_TENSOR_DOWN;
          ck_assert_int_eq (t.role, role);
          sum += t.rows * t.cols * (in_layer ? (guint64)model->layers : 1);
        }
      ck_assert_uint_eq (sum, plan_model_parameters (model));
    }
}
END_TEST

START_TEST (tensor_shapes)
{
  g_autoptr (PlanModel) model = plan_model_new ("llama3.2-1b", NULL);
  PlanTensor t = plan_model_tensor (model, PLAN_TENSOR_QKV, 0);
  ck_assert_str_eq (t.name, "qkv");
  ck_assert_uint_eq (t.rows, 3072);
  ck_assert_uint_eq (t.cols, 2048);
  t = plan_model_tensor (model, PLAN_TENSOR_EMBEDDING, 128384);
  ck_assert_uint_eq (t.rows, 128384);
  t = plan_model_tensor (model, PLAN_TENSOR_OUTPUT, 128384);
  ck_assert_uint_eq (t.rows, 0); /* tied */
  t = plan_model_tensor (model, PLAN_TENSOR_FINAL_NORM, 0);
  ck_assert_uint_eq (t.rows, 2048);
  ck_assert_uint_eq (t.cols, 1);
}
END_TEST

/* Megatron-LM's own count for its logs: GBS 128 and a vocabulary padded to 128384. */
START_TEST (flops_are_those_of_megatron)
{
  g_autoptr (PlanModel) small = plan_model_new ("llama3-8b", NULL);
  g_autoptr (PlanModel) large = plan_model_new ("llama3-70b", NULL);
  const double at_8192 = 128 * 8192 * plan_model_flops_per_token (small, 8192, 128384);
  const double at_4096 = 128 * 4096 * plan_model_flops_per_token (small, 4096, 128384);
  const double at_1024 = 128 * 1024 * plan_model_flops_per_token (small, 1024, 128384);
  const double of_70b = 128 * 1024 * plan_model_flops_per_token (large, 1024, 128384);
  ck_assert_double_eq_tol (at_8192 / 1e16, 5.3974, 5e-5);
  ck_assert_double_eq_tol (at_4096 / 1e16, 2.5298, 5e-5);
  ck_assert_double_eq_tol (at_1024 / 1e15, 6.0079, 5e-5);
  ck_assert_double_eq_tol (of_70b / 1e16, 5.5187, 5e-5);
}
END_TEST

START_TEST (dimensions_are_read_and_printed)
{
  g_autoptr (PlanModel) model = plan_model_new (TINY, NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_uint_eq (plan_model_parameters (model), 217664);
  ck_assert_str_eq (model->name, "custom");
  g_autofree char *text = plan_model_print (model);
  ck_assert_str_eq (text, "family=llama," TINY);
}
END_TEST

START_TEST (optional_dimensions)
{
  g_autoptr (PlanModel) model = plan_model_new (
      "vocab=256,max_seq=128,layers=1,hidden=64,ffn=100,heads=4,tied=on,name=a.b,norm_eps=1e-06,"
      "rope_theta=500000.5",
      NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_int_eq (model->kv_heads, 4);
  ck_assert_int_eq (model->head_dim, 16);
  g_autofree char *text = plan_model_print (model);
  ck_assert_str_eq (text,
                    "family=llama,layers=1,hidden=64,ffn=100,heads=4,kv_heads=4,head_dim=16,"
                    "vocab=256,max_seq=128,name=a.b,norm_eps=1e-06,rope_theta=500000.5,tied=on");
}
END_TEST

static const struct
{
  const char *spec, *message;
  int code;
} bad_specs[] = {
  { "llama3-8", "model: 'llama3-8' is neither a shipped model nor a file", PLAN_ERROR_INVALID },
  { "llama3-8", "did you mean 'llama3-8b'?", PLAN_ERROR_INVALID },
  { "nonesuch", "known are llama-tiny, llama-100m, llama2-7b", PLAN_ERROR_INVALID },
  { "", "model: '' is neither", PLAN_ERROR_INVALID },
  { "layers=4", "model: hidden: missing", PLAN_ERROR_INVALID },
  { TINY ",layers=4", "model: layers: given twice", PLAN_ERROR_INVALID },
  { TINY ",layer=4", "model: 'layer' is not a dimension of a model: did you mean 'layers'?",
    PLAN_ERROR_INVALID },
  { TINY ",", "model: '' is not of the form dimension=value", PLAN_ERROR_INVALID },
  { "family=qwen2," TINY, "model: family: 'qwen2' is not modelled yet, only llama is",
    PLAN_ERROR_UNSUPPORTED },
  { TINY ",tied=yes", "model: tied: 'yes' must be on or off", PLAN_ERROR_INVALID },
  { TINY ",norm_eps=0", "model: norm_eps: '0' is out of range", PLAN_ERROR_INVALID },
  { TINY ",norm_eps=nan", "model: norm_eps: 'nan' is not a decimal number", PLAN_ERROR_INVALID },
  { TINY ",rope_theta=0.5", "model: rope_theta: '0.5' is out of range", PLAN_ERROR_INVALID },
  { TINY ",name=a b", "model: name: only letters, digits and . _ + - may be used",
    PLAN_ERROR_INVALID },
  { TINY ",name=", "model: name: only letters", PLAN_ERROR_INVALID },
  { "layers=0,hidden=64,ffn=1,heads=1,vocab=1,max_seq=1", "model: layers: '0' is out of range",
    PLAN_ERROR_INVALID },
  { "layers=-1,hidden=64,ffn=1,heads=1,vocab=1,max_seq=1", "model: layers: '-1' is out of range",
    PLAN_ERROR_INVALID },
  { "layers=99999999999999999999,hidden=64", "model: layers: '99999999999999999999' does not fit",
    PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=3,vocab=1,max_seq=1",
    "model: head_dim: missing, and heads=3 does not divide hidden=64", PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=4,kv_heads=3,vocab=1,max_seq=1",
    "model: kv_heads: 3 does not divide heads=4", PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=4,head_dim=15,vocab=1,max_seq=1", "model: head_dim: 15 is odd",
    PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=100000,head_dim=100000,vocab=1,max_seq=1",
    "model: heads: 100000 of head_dim=100000 are wider", PLAN_ERROR_INVALID },
  { "layers=65536,hidden=2147483646,ffn=2147483647,heads=1,vocab=2147483647,max_seq=1",
    "model: model: more than 2^50 parameters", PLAN_ERROR_INVALID },
  { "layers=65536,hidden=65536,ffn=262144,heads=512,vocab=9,max_seq=1", "more than 2^50 parameters",
    PLAN_ERROR_INVALID },
  { "./no-such-file.json", "./no-such-file.json: No such file", PLAN_ERROR_IO },
  { "/dev/null", "/dev/null: not a regular file", PLAN_ERROR_IO },
};

START_TEST (refuses_spec)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (bad_specs[_i].spec, &error);
  ck_assert_ptr_null (model);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, bad_specs[_i].code), "%s", error->message);
  ck_assert_msg (strstr (error->message, bad_specs[_i].message), "%s", error->message);
}
END_TEST

/* A config.json of valid size with some text put in for the keys that a test is about. */
static char *
config_with (const char *keys)
{
  return g_strdup_printf ("{\"model_type\": \"llama\", \"hidden_act\": \"silu\", %s}", keys);
}

#define SIZES \
  "\"num_hidden_layers\": 32, \"hidden_size\": 4096, \"intermediate_size\": 14336, " \
  "\"vocab_size\": 128256, \"max_position_embeddings\": 8192"
#define HEADS "\"num_attention_heads\": 32, \"num_key_value_heads\": 8"
#define ALL SIZES ", " HEADS

START_TEST (config_is_read)
{
  g_autofree char *text = config_with (
      ALL
      ", \"rope_theta\": 500000.0, \"rms_norm_eps\": 1e-05, \"attention_bias\": false, "
      "\"mlp_bias\": null, \"tie_word_embeddings\": false, \"rope_scaling\": {\"factor\": 8.0}, "
      "\"architectures\": [\"LlamaForCausalLM\"], \"note\": \"\\ud83d\\ude00 \\u00e9 \\\"\"");
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model
      = plan_model_parse_config (text, strlen (text), "models/My Llama/config.json", &error);
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq (model->name, "My_Llama");
  ck_assert_uint_eq (plan_model_parameters (model), G_GUINT64_CONSTANT (8030261248));
  ck_assert (model->rope_theta == 500000 && model->norm_eps == 1e-5 && !model->tied_embeddings);
  ck_assert_int_eq (model->head_dim, 128);
}
END_TEST

START_TEST (config_defaults)
{
  g_autofree char *text = config_with (SIZES ", \"num_attention_heads\": 32, \"head_dim\": null, "
                                             "\"sliding_window\": null");
  g_autoptr (PlanModel) model = plan_model_parse_config (text, strlen (text), "x.json", NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_str_eq (model->name, "x");
  ck_assert_int_eq (model->kv_heads, 32);
  ck_assert_int_eq (model->head_dim, 128);
  ck_assert_int_eq (model->max_seq, 8192);
  ck_assert (model->norm_eps == 1e-6 && model->rope_theta == 10000);
}
END_TEST

START_TEST (config_of_mistral)
{
  const char *text = "{\"model_type\": \"mistral\", " SIZES ", " HEADS
                     ", \"sliding_window\": 4096, \"rope_parameters\": {\"rope_theta\": 1000000}, "
                     "\"head_dim\": 160, \"tie_word_embeddings\": true}";
  g_autoptr (PlanModel) model = plan_model_parse_config (text, strlen (text), "config.json", NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_str_eq (model->name, "custom");
  ck_assert_str_eq (model->family, "llama");
  ck_assert_int_eq (model->max_seq, 4096);
  ck_assert_int_eq (model->head_dim, 160);
  ck_assert (model->rope_theta == 1e6 && model->tied_embeddings);
}
END_TEST

static const struct
{
  const char *keys, *message;
  int code;
} bad_configs[] = {
  { ALL ", \"attention_bias\": true", "c.json: attention_bias: true is not modelled yet",
    PLAN_ERROR_UNSUPPORTED },
  { ALL ", \"mlp_bias\": true", "c.json: mlp_bias: true is not modelled yet",
    PLAN_ERROR_UNSUPPORTED },
  { ALL ", \"mlp_bias\": 1", "c.json: mlp_bias: '1' is neither true nor false",
    PLAN_ERROR_INVALID },
  { HEADS, "c.json: num_hidden_layers: missing", PLAN_ERROR_INVALID },
  { SIZES, "c.json: num_attention_heads: missing", PLAN_ERROR_INVALID },
  { ALL ", \"vocab_size\": 5", "c.json: 'vocab_size': given twice", PLAN_ERROR_INVALID },
  { ALL ", \"vocab\\u005fsize\": 5", "c.json: 'vocab_size': given twice", PLAN_ERROR_INVALID },
  { ALL ", \"rope_scaling\": {\"a\": 1, \"a\": 2}", "c.json: 'a': given twice",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 0", "num_attention_heads: '0' is out of range",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": -32", "num_attention_heads: '-32' is out of range",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 32.0", "num_attention_heads: '32.0' is not a whole number",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": \"32\"",
    "num_attention_heads: '\"32\"' is not a whole number", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": [32]", "num_attention_heads: '[32]' is not a whole number",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 3000000000",
    "'3000000000' is out of range: it must be from 1", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 18446744073709551648",
    "line 1: a number of more than 18 digits", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 0x20", "line 1: a number must be decimal",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 040", "without leading zeros", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": NaN", "neither a value nor punctuation of JSON",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 3.", "digits behind its point", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 3e", "digits in its exponent", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 31",
    "num_attention_heads: 31 does not divide hidden_size=4096", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 32, \"num_key_value_heads\": 5",
    "num_key_value_heads: 5 does not divide num_attention_heads=32", PLAN_ERROR_INVALID },
  { ALL ", \"head_dim\": 7", "c.json: head_dim: 7 is odd", PLAN_ERROR_INVALID },
  { ALL ", \"rms_norm_eps\": \"x\"", "rms_norm_eps: '\"x\"' is not a number", PLAN_ERROR_INVALID },
  { ALL ", \"rms_norm_eps\": 0", "norm_eps: must be from", PLAN_ERROR_INVALID },
  { ALL ", \"rope_theta\": 1e400", "rope_theta: must be from", PLAN_ERROR_INVALID },
  { ALL ", \"rope_parameters\": 5", "rope_parameters: '5' is not an object", PLAN_ERROR_INVALID },
  { ALL ", \"a\": [1", "not JSON", PLAN_ERROR_INVALID },
  { ALL "}} ", "text after the end", PLAN_ERROR_INVALID },
  { ALL ", // comment", "neither a value nor punctuation", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\ud800\"", "half of a surrogate pair", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\udc00\"", "a broken \\u escape", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\u12g4\"", "a broken \\u escape", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\x\"", "an unknown escape", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"b\nc\"", "line 1: a string is not closed on its line", PLAN_ERROR_INVALID },
};

START_TEST (refuses_config)
{
  g_autofree char *text = config_with (bad_configs[_i].keys);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_parse_config (text, strlen (text), "c.json", &error);
  ck_assert_ptr_null (model);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, bad_configs[_i].code), "%s", error->message);
  ck_assert_msg (strstr (error->message, bad_configs[_i].message), "%s", error->message);
  ck_assert_msg (g_str_has_prefix (error->message, "c.json: "), "%s", error->message);
  ck_assert_msg (!strchr (error->message, '\n'), "%s", error->message);
}
END_TEST

static const struct
{
  const char *text, *message;
  int code;
} bad_texts[] = {
  { "", "c.json: not", PLAN_ERROR_INVALID },
  { "null", "c.json: not a JSON object", PLAN_ERROR_INVALID },
  { "[]", "c.json: not a JSON object", PLAN_ERROR_INVALID },
  { "]", "c.json: line 1: a bracket is closed that was not opened", PLAN_ERROR_INVALID },
  { "{\"model_type\": \n\"llama\" \"x\"}", "c.json: not JSON", PLAN_ERROR_INVALID },
  { "{}", "c.json: model_type: missing", PLAN_ERROR_INVALID },
  { "{\"model_type\": 5}", "c.json: model_type: '5' is not a string", PLAN_ERROR_INVALID },
  { "{\"model_type\": \"qwen2\"}",
    "c.json: model_type: the family 'qwen2' is not modelled yet; llama and mistral are",
    PLAN_ERROR_UNSUPPORTED },
  { "{\"model_type\": \"llama\", \"hidden_act\": \"gelu\"}",
    "c.json: hidden_act: 'gelu' is not modelled yet; silu is", PLAN_ERROR_UNSUPPORTED },
  { "{\"a\": \"\xff\"}", "c.json: byte 7 is not UTF-8 text", PLAN_ERROR_INVALID },
};

START_TEST (refuses_text)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model
      = plan_model_parse_config (bad_texts[_i].text, strlen (bad_texts[_i].text), "c.json", &error);
  ck_assert_ptr_null (model);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, bad_texts[_i].code), "%s", error->message);
  ck_assert_msg (strstr (error->message, bad_texts[_i].message), "%s", error->message);
}
END_TEST

START_TEST (refuses_deep_nesting)
{
  g_autofree char *text = g_strnfill (1000000, '[');
  g_autoptr (GError) error = NULL;
  ck_assert_ptr_null (plan_model_parse_config (text, strlen (text), "c.json", &error));
  ck_assert_str_eq (error->message, "c.json: line 1: nested deeper than any config.json");
}
END_TEST

START_TEST (reads_files_and_folders)
{
  g_autofree char *folder = g_dir_make_tmp ("fsdplan-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (folder, "config.json", NULL);
  g_autofree char *text = config_with (ALL);
  g_autoptr (GError) error = NULL;
  ck_assert_ptr_null (plan_model_new (folder, &error)); /* nothing in it yet */
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_IO));
  ck_assert_msg (strstr (error->message, "config.json: No such file"), "%s", error->message);
  g_clear_error (&error);

  ck_assert (g_file_set_contents (path, text, -1, NULL));
  g_autoptr (PlanModel) of_folder = plan_model_new (folder, NULL);
  g_autoptr (PlanModel) of_file = plan_model_new (path, NULL);
  ck_assert (of_folder && of_file);
  g_autofree char *a = plan_model_print (of_folder), *b = plan_model_print (of_file);
  ck_assert_str_eq (a, b);

  g_autofree char *large = g_strnfill (10 * 1024 * 1024 + 1, ' ');
  ck_assert (g_file_set_contents (path, large, -1, NULL));
  ck_assert_ptr_null (plan_model_new (path, &error));
  ck_assert_msg (strstr (error->message, "larger than 10485760 bytes"), "%s", error->message);
  g_unlink (path);
  g_rmdir (folder);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model");
  TCase *tcase = tcase_create ("model");
  tcase_add_loop_test (tcase, parameters_are_the_published_ones, 0, G_N_ELEMENTS (published));
  tcase_add_test (tcase, every_preset_is_sound);
  tcase_add_test (tcase, preset_order_is_fixed);
  tcase_add_test (tcase, tensors_sum_to_parameters);
  tcase_add_test (tcase, tensor_shapes);
  tcase_add_test (tcase, flops_are_those_of_megatron);
  tcase_add_test (tcase, dimensions_are_read_and_printed);
  tcase_add_test (tcase, optional_dimensions);
  tcase_add_loop_test (tcase, refuses_spec, 0, G_N_ELEMENTS (bad_specs));
  tcase_add_test (tcase, config_is_read);
  tcase_add_test (tcase, config_defaults);
  tcase_add_test (tcase, config_of_mistral);
  tcase_add_loop_test (tcase, refuses_config, 0, G_N_ELEMENTS (bad_configs));
  tcase_add_loop_test (tcase, refuses_text, 0, G_N_ELEMENTS (bad_texts));
  tcase_add_test (tcase, refuses_deep_nesting);
  tcase_add_test (tcase, reads_files_and_folders);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
