/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose layers follow a pattern: state spaces (Mamba-2), attention, MLPs, experts. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/layer-kinds.h"
#include "tests/unit/test-config-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define WITH(keys) "{\"model_type\": \"nemotron_h\", " keys "}"
#define SMALL \
  "\"num_hidden_layers\": 4, \"hidden_size\": 512, \"intermediate_size\": 96, " \
  "\"num_attention_heads\": 32, \"vocab_size\": 100, \"max_position_embeddings\": 50"
#define TEXT \
  "family=nemotron_h,layers=4,hidden=512,ffn=96,heads=32,kv_heads=8,head_dim=128,vocab=100," \
  "max_seq=50"
#define EXPERTS \
  ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 9, "

/* What model text a config.json becomes. The first has only the keys that it must have. */
static const struct
{
  const char *config, *text;
} configs[] = {
  { WITH (SMALL ", \"hybrid_override_pattern\": \"M-M*\""), TEXT ",pattern=M-M*" },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"MM*-\", \"mamba_num_heads\": 6, "
                "\"mamba_head_dim\": 8, \"n_groups\": 3, \"ssm_state_size\": 16, \"conv_kernel\": "
                "2, \"attention_head_dim\": 64, \"expand\": 2, \"chunk_size\": 128, "
                "\"rope_theta\": 10000, \"partial_rotary_factor\": 1.0, \"mlp_hidden_act\": "
                "\"relu2\", \"layer_norm_epsilon\": 1e-05, \"use_conv_bias\": true, "
                "\"n_routed_experts\": 8, \"num_experts_per_tok\": 2, "
                "\"residual_in_fp32\": false, \"time_step_floor\": 0.0001"),
    "family=nemotron_h,layers=4,hidden=512,ffn=96,heads=32,kv_heads=8,head_dim=64,vocab=100,"
    "max_seq=50,pattern=MM*-,ssm_heads=6,ssm_head_dim=8,ssm_groups=3,ssm_state=16,ssm_conv=2" },
  { WITH (SMALL ", \"layers_block_type\": [\"mamba\", \"moe\", \"attention\", \"mlp\"]" EXPERTS
                "\"moe_shared_expert_intermediate_size\": 7, \"n_shared_experts\": 1, "
                "\"n_group\": 1, \"topk_group\": 1, \"routed_scaling_factor\": 2.5, "
                "\"norm_topk_prob\": true, \"num_nextn_predict_layers\": 0"),
    TEXT ",experts=8,topk=2,expert_ffn=9,shared_ffn=7,router_bias=on,router_score=sigmoid,"
         "router_scale=2.5,pattern=ME*-" },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"MEM*\"" EXPERTS "\"moe_latent_size\": 64"),
    TEXT ",experts=8,topk=2,expert_ffn=9,expert_hidden=64,shared_ffn=9,router_bias=on,"
         "router_score=sigmoid,pattern=MEM*" },
};

START_TEST (config_of_family) { check_config_is_read (configs[_i].config, configs[_i].text); }
END_TEST

static const struct
{
  const char *config, *message;
  int code;
} bad_configs[] = {
  { WITH (SMALL), "c.json: hybrid_override_pattern: missing", PLAN_ERROR_INVALID },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"M-G*\""),
    "c.json: hybrid_override_pattern: letter 'G' is not one of M", PLAN_ERROR_INVALID },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"M-*\""),
    "c.json: hybrid_override_pattern: describes 3 layers, not layers=4", PLAN_ERROR_INVALID },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"-*-*\""),
    "c.json: hybrid_override_pattern: no layer is M", PLAN_ERROR_INVALID },
  { WITH (SMALL ", \"layers_block_type\": [\"mamba\", \"rwkv\"]"),
    "c.json: layers_block_type: '\"rwkv\"' is not mamba, attention, mlp or moe",
    PLAN_ERROR_INVALID },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"MM*-\", \"n_groups\": 3"),
    "c.json: n_groups: 3 does not divide", PLAN_ERROR_INVALID },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"MM*-\", \"chunk_size\": 256"),
    "c.json: chunk_size: '256' is not modelled for this family", PLAN_ERROR_UNSUPPORTED },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"MM*-\", \"num_nextn_predict_layers\": 1"),
    "c.json: num_nextn_predict_layers: prediction modules", PLAN_ERROR_UNSUPPORTED },
  { WITH (SMALL ", \"hybrid_override_pattern\": \"MEM*\"" EXPERTS "\"norm_topk_prob\": false"),
    "c.json: norm_topk_prob: only true is modelled", PLAN_ERROR_UNSUPPORTED },
};

START_TEST (refuses_config)
{
  check_config_is_refused (bad_configs[_i].config, bad_configs[_i].message, bad_configs[_i].code);
}
END_TEST

static const struct
{
  const char *spec, *message;
} bad_specs[] = {
  { "llama3-8b,ssm_heads=8", "pattern: missing: what begins with ssm_" },
  { "nemotron-h-8b,layers=4", "pattern: describes 52 layers, not layers=4: give both" },
  { "nemotron-h-8b,layers=2,pattern=ME", "pattern: layers E need experts" },
  { "nemotron-h-8b,ssm_state=0", "pattern: layers M need ssm_heads" },
  { "nemotron-h-8b,qkv_bias=on", "pattern: needs norm=rmsnorm and no norm_bias, qkv_bias" },
  { "nemotron-3-nano-30b-a3b,mtp=1", "prediction modules (mtp) are not modelled beside it" },
  { "nemotron-3-nano-30b-a3b,dense_layers=1", "pattern: says what each layer is" },
  { "nemotron-h-8b,positions=learned", "pattern: needs positions=none or rope" },
};

START_TEST (refuses_spec)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (bad_specs[_i].spec, &error);
  ck_assert_ptr_null (model);
  ck_assert_msg (strstr (error->message, bad_specs[_i].message), "%s", error->message);
}
END_TEST

/* A layer has the tensors of its letter, and its norm. */
START_TEST (layers_have_one_part)
{
  static const struct
  {
    char letter;
    const char *names;
    guint kind;
  } parts[] = {
    { 'M',
      "ssm_conv ssm_conv_bias ssm_step ssm_decay ssm_skip attention_norm ssm_in ssm_norm ssm_out ",
      PLAN_LAYER_PART | PLAN_LAYER_RECURRENT },
    { '*', "proj attention_norm qkv ", PLAN_LAYER_PART },
    { '-', "mlp_norm gate_up down ", PLAN_LAYER_MLP },
    { 'E', "mlp_norm router router_bias expert_gate_up expert_down shared_gate_up shared_down ",
      PLAN_LAYER_PART | PLAN_LAYER_EXPERTS },
  };
  g_autoptr (PlanModel) model
      = plan_model_new ("nemotron-3-nano-30b-a3b,layers=7,pattern=M*-EEM*", NULL);
  for (gint64 layer = 0; layer < model->layers; layer++)
    {
      PlanTensor tensors[PLAN_N_TENSORS];
      const guint n = plan_model_layer_tensors (model, layer, tensors);
      g_autoptr (GString) names = g_string_new (NULL);
      guint part = 0;
      for (guint i = 0; i < n; i++)
        g_string_append_printf (names, "%s ", tensors[i].name);
      while (parts[part].letter != "M*-EEM*"[layer])
        part++;
      ck_assert_str_eq (names->str, parts[part].names);
      ck_assert_uint_eq (plan_model_layer_kind (model, layer, 8192), parts[part].kind);
      ck_assert_int_eq (plan_model_is_moe_layer (model, layer), parts[part].letter == 'E');
    }
  ck_assert_int_eq (plan_model_moe_layers (model), 2);
}
END_TEST

/* Every parameter of Nemotron 3 Nano's checkpoint from its names and shapes
 * (modeling_nemotron_h.py, config.json): 23 layers of Mamba-2, 6 of attention, 23 of experts.
 * Published are 31.6 billion, of which 3.6 are active, 3.2 without the embedding. */
START_TEST (counts_as_in_the_checkpoint)
{
  g_autoptr (PlanModel) model = plan_model_new ("nemotron-3-nano-30b-a3b", NULL);
  const guint64 h = 2688, heads = 64, inner = heads * 64, bc = 2 * 8 * 128;
  const guint64 in_proj = (inner + inner + bc + heads) * h, out_proj = h * inner;
  const guint64 conv1d = (inner + bc) * 4 + (inner + bc), dt_bias = heads, a_log = heads, d = heads;
  const guint64 mamba = h + in_proj + conv1d + dt_bias + a_log + d + inner + out_proj;
  const guint64 attention = h + 2 * (32 * 128) * h + 2 * (2 * 128) * h;
  const guint64 moe = h + 128 * h + 128 + 2 * h * 3712, expert = 2 * h * 1856;
  const guint64 embedding = 131072 * h, outer = 2 * embedding + h;
  const guint64 but_experts = 23 * mamba + 6 * attention + 23 * moe + outer;
  const guint64 active = but_experts + 23 * 6 * expert;
  ck_assert_uint_eq (plan_model_parameters (model), but_experts + 23 * 128 * expert);
  ck_assert_uint_eq (plan_model_parameters (model), G_GUINT64_CONSTANT (31577940288));
  ck_assert_uint_eq (plan_model_active_parameters (model), active);
  ck_assert_uint_eq ((active + 50000000) / 100000000, 36);
  ck_assert_uint_eq ((active - embedding + 50000000) / 100000000, 32);
}
END_TEST

/* Nemotron 3 Super without its prediction module: experts read 1024 of 4096 columns. Published are
 * 120 billion parameters, 12 of them active. */
START_TEST (narrow_experts_count)
{
  g_autoptr (PlanModel) model = plan_model_new ("nemotron-3-super-120b-a12b", NULL);
  const guint64 h = 4096, latent = 1024, heads = 128, inner = heads * 64, bc = 2 * 8 * 128;
  const guint64 mamba
      = h + (2 * inner + bc + heads) * h + (inner + bc) * 5 + 3 * heads + inner + h * inner;
  const guint64 attention = h + 2 * (32 * 128) * h + 2 * (2 * 128) * h;
  const guint64 moe = h + 512 * h + 512 + 2 * h * 5376 + 2 * h * latent;
  const guint64 expert = 2 * latent * 2688, outer = 2 * 131072 * h + h;
  const guint64 but_experts = 40 * mamba + 8 * attention + 40 * moe + outer;
  ck_assert_uint_eq (plan_model_parameters (model), but_experts + 40 * 512 * expert);
  ck_assert_uint_eq (plan_model_active_parameters (model), but_experts + 40 * 22 * expert);
  ck_assert_uint_eq (plan_model_active_parameters (model) / 1000000000, 12);
  const double w = 4096, in = 2 * w, s = 8192, l = 1024;
  const double state = 2 * w * (2 * in + 2 * 8 * 128.0 + 128) + 7 * in * 128 + 2 * in * w;
  const double attends = 4 * w * (w + w * 2 / 32.0) + 2 * s * w;
  const double experts = 4 * l * 2688 * 22 + 4 * w * l + 4 * w * 5376;
  ck_assert_double_eq_tol (plan_model_flops_per_token (model, 8192, 131072),
                           3 * (40 * state + 8 * attends + 40 * experts + 2 * w * 131072), 1);
}
END_TEST

/* Term by term as in Megatron-LM training.py, hybrid_flops, whose width inside is twice the
 * model's. */
START_TEST (flops_are_those_of_megatron)
{
  const double s = 8192;
  g_autoptr (PlanModel) small = plan_model_new ("nemotron-h-8b", NULL);
  const double h = 4096, d_in = 2 * h;
  const double mamba = 2 * h * (2 * d_in + 2 * 8 * 128.0 + 128) + 7 * d_in * 128 + 2 * d_in * h;
  const double attention = 4 * h * (h + h * 8 / 32.0) + 2 * s * h;
  const double mlp = 4 * (21504 / h) * h * h;
  ck_assert_double_eq_tol (plan_model_flops_per_token (small, 8192, 131072),
                           3 * (24 * mamba + 4 * attention + 24 * mlp + 2 * h * 131072), 1);
  g_autoptr (PlanModel) nano = plan_model_new ("nemotron-3-nano-30b-a3b", NULL);
  const double w = 2688, in = 2 * w, p = 128 * 32 / w;
  const double state = 2 * w * (2 * in + 2 * 8 * 128.0 + 64) + 7 * in * 128 + 2 * in * w;
  const double attends = 4 * w * p * (w + w * 2 / 32.0) + 2 * s * w * p;
  const double moe = 4 * w * 1856 * 6 + 4 * w * 3712;
  ck_assert_double_eq_tol (plan_model_flops_per_token (nano, 8192, 131072),
                           3 * (23 * state + 6 * attends + 23 * moe + 2 * w * 131072), 1);
}
END_TEST

/* The period by which most layers recur. */
START_TEST (patterns_recur)
{
  static const struct
  {
    const char *pattern;
    gint64 period;
  } cases[] = { { "MM*MM*MM*", 3 },
                { "M-M-M-M-M-M-", 2 },
                { "*MMMMMMM", 1 },
                { "M-M*-M-M-M*-M-M-M*-M-M-M*-", 7 } };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *spec = g_strdup_printf ("nemotron-h-8b,layers=%d,pattern=%s",
                                               (int)strlen (cases[i].pattern), cases[i].pattern);
      g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
      ck_assert_int_eq (plan_model_kinds_period (model, 8192), cases[i].period);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model-pattern");
  TCase *tcase = tcase_create ("model-pattern");
  tcase_add_loop_test (tcase, config_of_family, 0, G_N_ELEMENTS (configs));
  tcase_add_loop_test (tcase, refuses_config, 0, G_N_ELEMENTS (bad_configs));
  tcase_add_loop_test (tcase, refuses_spec, 0, G_N_ELEMENTS (bad_specs));
  tcase_add_test (tcase, layers_have_one_part);
  tcase_add_test (tcase, counts_as_in_the_checkpoint);
  tcase_add_test (tcase, narrow_experts_count);
  tcase_add_test (tcase, flops_are_those_of_megatron);
  tcase_add_test (tcase, patterns_recur);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
