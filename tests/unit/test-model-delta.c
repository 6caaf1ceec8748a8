/* SPDX-License-Identifier: Apache-2.0 */
/* Models with layers of linear attention by the gated delta rule. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/model.h"
#include "tests/unit/test-config-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* What model text a config.json becomes. The first of each family has only the keys that it must
 * have: all else is transformers' default. */
static const struct
{
  const char *config, *text;
} configs[] = {
#define WITH(type, keys) "{\"model_type\": \"" type "\", " keys "}"
#define SMALL \
  "\"num_hidden_layers\": 6, \"hidden_size\": 512, \"intermediate_size\": 96, " \
  "\"num_attention_heads\": 32, \"vocab_size\": 100, \"max_position_embeddings\": 50"
#define TEXT(family, kv_heads, head_dim) \
  "family=" family ",layers=6,hidden=512,ffn=96,heads=32,kv_heads=" kv_heads ",head_dim=" head_dim \
  ",vocab=100,max_seq=50"
  { WITH ("qwen3_next", SMALL), TEXT ("qwen3_next", "2", "256") },
  { WITH (
        "qwen3_next", SMALL
        ", \"layer_types\": [\"linear_attention\", \"linear_attention\", \"full_attention\", "
        "\"linear_attention\", \"linear_attention\", \"full_attention\"], "
        "\"linear_num_key_heads\": 2, "
        "\"linear_num_value_heads\": 6, \"linear_key_head_dim\": 8, \"linear_value_head_dim\": 4, "
        "\"linear_conv_kernel_dim\": 3, \"norm_topk_prob\": false, "
        "\"shared_expert_intermediate_size\": 7, "
        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5, "
        "\"partial_rotary_factor\": 0.5}"),
    TEXT ("qwen3_next", "2",
          "256") ",rope_theta=5,rope_fraction=0.5,shared_ffn=7,pre_softmax=on,attn_every=3,"
                 "delta_key_heads=2,delta_value_heads=6,delta_key_dim=8,delta_value_dim=4,delta_"
                 "conv=3" },
  { WITH ("qwen3_5_text", SMALL ", \"full_attention_interval\": 2, \"attn_output_gate\": false, "
                                "\"mtp_num_hidden_layers\": 1, \"mamba_ssm_dtype\": \"float32\", "
                                "\"rope_parameters\": {\"mrope_interleaved\": "
                                "true, \"mrope_section\": [11, 11, 10], \"rope_type\": "
                                "\"default\", \"rope_theta\": 10000000}"),
    TEXT ("qwen3_5_text", "4", "256") ",rope_theta=10000000,attn_gate=off,attn_every=2" },
  { WITH ("qwen3_5_text", SMALL), TEXT ("qwen3_5_text", "4", "256") },
  { WITH ("qwen3_5_moe_text", SMALL ", \"moe_intermediate_size\": 9"),
    "family=qwen3_5_moe_text,layers=6,hidden=512,ffn=9,heads=32,kv_heads=2,head_dim=256,vocab=100,"
    "max_seq=50,expert_ffn=9" },
  { "{\"model_type\": \"qwen3_5_moe\", \"image_token_id\": 8, \"text_config\": {\"model_type\": "
    "\"qwen3_5_moe_text\", " SMALL ", \"moe_intermediate_size\": 9, \"mtp_num_hidden_layers\": 1, "
    "\"mtp_use_dedicated_embeddings\": false}, "
    "\"video_token_id\": 9, \"vision_config\": {\"depth\": 27}, \"vision_end_token_id\": 10, "
    "\"vision_start_token_id\": 11}",
    "family=qwen3_5_moe_text,layers=6,hidden=512,ffn=9,heads=32,kv_heads=2,head_dim=256,vocab=100,"
    "max_seq=50,name=custom-text,"
    "expert_ffn=9,mtp=1" },
};

START_TEST (config_of_family) { check_config_is_read (configs[_i].config, configs[_i].text); }
END_TEST

static const struct
{
  const char *config, *message;
  int code;
} bad_configs[] = {
  { WITH ("qwen3_next", SMALL ", \"layer_types\": [\"linear_attention\", \"full_attention\", "
                              "\"linear_attention\", \"linear_attention\", "
                              "\"full_attention\", \"linear_attention\"]"),
    "c.json: layer_types: only full_attention in the last of every so many layers is modelled, "
    "layer 3 breaks them",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("qwen3_next", SMALL ", \"layer_types\": [\"sliding_attention\", \"full_attention\", "
                              "\"linear_attention\", \"linear_attention\", "
                              "\"full_attention\", \"linear_attention\"]"),
    "c.json: layer_types: '\"sliding_attention\"' is neither full_attention nor linear_attention",
    PLAN_ERROR_INVALID },
  { WITH ("qwen3_5_text", SMALL ", \"linear_num_key_heads\": 3"),
    "c.json: linear_num_key_heads: 3 does not divide", PLAN_ERROR_INVALID },
  { WITH ("qwen3_5_text", SMALL ", \"full_attention_interval\": 1"),
    "c.json: full_attention_interval: 1, so all layers have attention", PLAN_ERROR_INVALID },
};

START_TEST (refuses_config)
{
  check_config_is_refused (bad_configs[_i].config, bad_configs[_i].message, bad_configs[_i].code);
}
END_TEST

/* The last of every four layers has attention; each lists the tensors of its kind. */
START_TEST (layers_alternate)
{
  g_autoptr (PlanModel) model = plan_model_new ("qwen3.5-0.8b", NULL);
  for (gint64 layer = 0; layer < model->layers; layer++)
    {
      PlanTensor tensors[PLAN_N_TENSORS];
      const guint n = plan_model_layer_tensors (model, layer, tensors);
      g_autoptr (GString) names = g_string_new (NULL);
      for (guint i = 0; i < n; i++)
        g_string_append_printf (names, "%s ", tensors[i].name);
      const gboolean is_full = layer % 4 == 3;
      ck_assert_int_eq (plan_model_is_delta_layer (model, layer), !is_full);
      ck_assert_msg ((strstr (names->str, "delta_in") == NULL) == is_full, "%s", names->str);
      ck_assert_msg ((strstr (names->str, "qkv") != NULL) == is_full, "%s", names->str);
    }
}
END_TEST

/* Every parameter of Qwen3-Next's checkpoint, counted tensor by tensor from its names and shapes
 * (model.safetensors.index.json): each layer's of linear attention, of attention, of experts. */
START_TEST (linear_attention_counts_as_in_the_checkpoint)
{
  g_autoptr (PlanModel) model = plan_model_new ("qwen3-next-80b-a3b", NULL);
  const guint64 h = 2048, linear = 36, full = 12, all = linear + full;
  const guint64 in_proj_qkvz = (2 * 16 * 128 + 2 * 32 * 128) * h, in_proj_ba = 2 * 32 * h;
  const guint64 conv1d = (2 * 16 * 128 + 32 * 128) * 4, a_log = 32, dt_bias = 32, norm = 128;
  const guint64 out_proj = h * 32 * 128;
  const guint64 q_proj = 2 * 16 * 256 * h, k_proj = 2 * 256 * h, v_proj = 2 * 256 * h;
  const guint64 o_proj = h * 16 * 256, q_norm = 256, k_norm = 256;
  const guint64 expert = 3 * h * 512, gate = 512 * h, shared = 3 * h * 512, shared_gate = h;
  const guint64 of_linear = in_proj_qkvz + in_proj_ba + conv1d + a_log + dt_bias + norm + out_proj;
  const guint64 of_full = q_proj + k_proj + v_proj + o_proj + q_norm + k_norm;
  const guint64 of_mlp = gate + shared + shared_gate + 2 * h;
  const guint64 outer = 2 * 151936 * h + h;
  const guint64 but_experts = linear * of_linear + full * of_full + all * of_mlp + outer;
  ck_assert_uint_eq (plan_model_parameters (model), but_experts + all * 512 * expert);
  ck_assert_uint_eq (plan_model_active_parameters (model), but_experts + all * 10 * expert);
  ck_assert_uint_eq (plan_model_mtp_parameters (model),
                     of_full + of_mlp + 512 * expert + 2 * h * h + 3 * h);
  ck_assert_uint_eq (plan_model_parameters (model) + plan_model_mtp_parameters (model),
                     G_GUINT64_CONSTANT (81324862720)); /* all of its files */
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model-delta");
  TCase *tcase = tcase_create ("model-delta");
  tcase_add_loop_test (tcase, config_of_family, 0, G_N_ELEMENTS (configs));
  tcase_add_loop_test (tcase, refuses_config, 0, G_N_ELEMENTS (bad_configs));
  tcase_add_test (tcase, layers_alternate);
  tcase_add_test (tcase, linear_attention_counts_as_in_the_checkpoint);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
