/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/test-plan-case.h"

START_TEST (defaults_print_as_nothing)
{
  Plan plan;
  plan_init (&plan);
  g_autofree char *text = plan_print (&plan);
  ck_assert_str_eq (text, "");
  ck_assert_int_eq (plan.value[PLAN_NCCL], 2028);
  ck_assert_int_eq (plan.value[PLAN_STRATEGY], PLAN_STRATEGY_OPTIM_GRADS_PARAMS);
  ck_assert_int_eq (plan.value[PLAN_GBS], PLAN_UNSET);
}
END_TEST

static const struct
{
  const char *name, *text;
  PlanField field;
  gint64 value;
} values[] = {
  { "stack", "native", PLAN_STACK, PLAN_STACK_NATIVE },
  { "stack", "megatron-fsdp@2026-08-22", PLAN_STACK,
    PLAN_STACK_MEGATRON_FSDP + 16 * G_GINT64_CONSTANT (20260822) },
  { "stack", "native@0001-01-01", PLAN_STACK, PLAN_STACK_NATIVE + 16 * 10101 },
  { "nccl", "2.28", PLAN_NCCL, 2028 },
  { "nccl", "12.0", PLAN_NCCL, 12000 },
  { "strategy", "optim", PLAN_STRATEGY, PLAN_STRATEGY_OPTIM },
  { "sharp", "nvl+ib", PLAN_SHARP, PLAN_SHARP_NVL_IB },
  { "tp", "8", PLAN_TP, 8 },
  { "gbs", "2147483647", PLAN_GBS, G_MAXINT32 },
  { "comm_unit", "auto", PLAN_COMM_UNIT, PLAN_UNSET },
  { "comm_unit", "1000000000000000", PLAN_COMM_UNIT, G_GINT64_CONSTANT (1000000000000000) },
  { "offload_optimizer", "0.25", PLAN_OFFLOAD_OPTIMIZER, 250000 },
  { "offload_optimizer", "0.000001", PLAN_OFFLOAD_OPTIMIZER, 1 },
  { "offload_optimizer", "1", PLAN_OFFLOAD_OPTIMIZER, 1000000 },
  { "moe_imbalance", "1", PLAN_MOE_IMBALANCE, 1000000 },
  { "moe_imbalance", "12.05", PLAN_MOE_IMBALANCE, 12050000 },
  { "moe_capacity", "none", PLAN_MOE_CAPACITY, 0 },
  { "moe_capacity", "0.5", PLAN_MOE_CAPACITY, 500000 },
  { "moe_capacity", "1.25", PLAN_MOE_CAPACITY, 1250000 },
  { "offload_modules", "none", PLAN_OFFLOAD_MODULES, 0 },
  { "recompute_modules", "core_attn+layernorm", PLAN_RECOMPUTE_MODULES, 5 },
};

START_TEST (value_is_read_and_printed)
{
  Plan plan;
  PlanField field;
  plan_init (&plan);
  ck_assert (plan_field_parse (values[_i].name, &field, NULL));
  ck_assert_int_eq (field, values[_i].field);
  ck_assert (plan_set (&plan, values[_i].name, values[_i].text, NULL));
  ck_assert_int_eq (plan.value[field], values[_i].value);
  g_autofree char *text = plan_field_print (field, plan.value[field]);
  ck_assert_str_eq (text, values[_i].text);
}
END_TEST

/* Words of other frameworks, each with ours. */
static const char *const words[][3] = {
  { "strategy", "zero3", "optim_grads_params" },
  { "strategy", "ZeRO-3", "optim_grads_params" },
  { "strategy", "zero_1", "optim" },
  { "strategy", "zero2", "optim_grads" },
  { "strategy", "zero1", "optim" },
  { "strategy", "full_shard", "optim_grads_params" },
  { "strategy", "FULL-SHARD", "optim_grads_params" },
  { "strategy", "SHARD_GRAD_OP", "optim_grads" },
  { "strategy", "fsdp", "optim_grads_params" },
  { "strategy", "ddp", "no_shard" },
  { "strategy", "NO_SHARD", "no_shard" },
  { "strategy", "Optim-Grads", "optim_grads" },
  { "compute", "bfloat16", "bf16" },
  { "main_params", "float32", "fp32" },
  { "main_grads", "torch.bfloat16", "bf16" },
  { "nccl_ub", "True", "on" },
  { "cuda_graph", "no", "off" },
  { "stack", "megatron_fsdp", "megatron-fsdp" },
  { "stack", "Megatron-LM", "megatron" },
  { "stack", "torchtitan", "fsdp2" },
  { "moe_dispatcher", "standard", "alltoall" },
};

START_TEST (others_words_are_understood)
{
  Plan plan;
  PlanField field;
  plan_init (&plan);
  ck_assert (plan_field_parse (words[_i][0], &field, NULL));
  ck_assert (plan_set (&plan, words[_i][0], words[_i][1], NULL));
  g_autofree char *text = plan_field_print (field, plan.value[field]);
  ck_assert_str_eq (text, words[_i][2]);
}
END_TEST

static const struct
{
  const char *name, *text, *message;
} bad_values[] = {
  { "stratgy", "optim", "'stratgy' is not a field of a plan: did you mean 'strategy'?" },
  { "dropout", "0.1", "did you mean 'hidden_dropout' or 'attention_dropout'?" },
  { "imbalance", "2", "'imbalance' is not a field of a plan: did you mean 'moe_imbalance'?" },
  { "zzzzzzzz", "1", "'zzzzzzzz' is not a field of a plan: known are stack, nccl, strategy" },
  { "strategy", "otpim",
    "strategy: 'otpim' must be no_shard|optim|optim_grads|optim_grads_params: "
    "did you mean 'optim'?" },
  { "nccl_ub", "maybe", "nccl_ub: 'maybe' must be off|on" },
  { "strategy", "HSDP",
    "strategy: 'HSDP' is not one value: write strategy=optim_grads_params and dp_outer=N" },
  { "compute", "fp8", "compute: 'fp8' is not one value: write the recipe: compute=fp8-delayed," },
  { "global_batch_size", "8", "'global_batch_size' is not a field of a plan: did you mean 'gbs'?" },
  { "nccl_ub", "", "nccl_ub: '' must be off|on" },
  { "tp", "0", "tp: '0' is out of range: it must be from 1 to 2147483647" },
  { "tp", "2x", "tp: '2x' is not a whole number" },
  { "gbs", "99999999999999999999", "gbs: '99999999999999999999' does not fit 64 bits" },
  { "offload_layers", "-1", "offload_layers: '-1' is out of range: it must be from 0" },
  { "comm_unit", "0", "comm_unit: '0' is out of range" },
  { "pp_layout", "t|t", "pp_layout is 't|t': stages are separated by '|', one E begins" },
  { "pp_layout", "Et|tL|L", "pp_layout is 'Et|tL|L': stages are separated by '|', one E begins" },
  { "pp_layout", "Et*3|t*x|L", "x*n repeats a letter" },
  { "pp_layout", "Et*12|t*99999999|L", "x*n repeats a letter" },
  { "comm_unit", "Auto", "comm_unit: 'Auto' is not a whole number" },
  { "offload_optimizer", "1.1",
    "offload_optimizer: '1.1' is out of range: it must be from 0 to 1" },
  { "offload_optimizer", "0.1234567",
    "offload_optimizer: '0.1234567' must be written with at most six "
    "decimals, as 0.25" },
  { "offload_optimizer", "1e-1", "must be written with at most six decimals" },
  { "offload_optimizer", "nan", "offload_optimizer: 'nan' is not a decimal number" },
  { "moe_imbalance", "0.99", "moe_imbalance: '0.99' is out of range: it must be from 1 to" },
  { "moe_imbalance", "1.0000001", "must be written with at most six decimals, as 1.25" },
  { "recompute_modules", "mlp+mlp", "recompute_modules: 'mlp' is given twice" },
  { "recompute_modules", "mlp+",
    "recompute_modules: '' must be none, or core_attn|mlp|layernorm|moe|" },
  { "recompute_modules", "", "recompute_modules: '' must be none, or" },
  { "recompute_modules", "none+mlp", "recompute_modules: 'none' must be" },
  { "expert_tensor_parallel_size", "2", "did you mean 'etp'?" },
  { "moe_dispatcher", "flex", "write its backend: moe_dispatcher=deepep or hybridep" },
  { "recompute_modules", "layernrom", "did you mean 'layernorm'?" },
  { "nccl", "2", "nccl: '2' is not a version: write major.minor, as 2.28" },
  { "nccl", "2.28.3", "is not a version" },
  { "nccl", "2.1000", "is not a version" },
  { "nccl", "0.1", "is not a version" },
  { "stack", "megatron-fsdq",
    "stack: 'megatron-fsdq' must be megatron-fsdp|megatron|fsdp2|fsdp1|"
    "nanotron|native, then @yyyy-mm-dd for a date or @RELEASE: did you mean "
    "'megatron-fsdp'?" },
  { "stack", "native@",
    "stack: '' is neither a date nor a known release: write native@yyyy-mm-dd, or native alone" },
  { "stack", "native@2026-02-29", "stack: '2026-02-29' is neither a date nor a known release" },
  { "stack", "native@2026-2-02", "is neither a date nor a known release" },
  { "stack", "native@2026-02-020", "is neither a date nor a known release" },
  { "stack", "native@0000-01-01", "is neither a date nor a known release" },
};

START_TEST (refuses_value)
{
  g_autoptr (GError) error = NULL;
  Plan plan, before;
  plan_init (&plan);
  before = plan;
  ck_assert (!plan_set (&plan, bad_values[_i].name, bad_values[_i].text, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (strstr (error->message, bad_values[_i].message), "%s", error->message);
  ck_assert_mem_eq (&plan, &before, sizeof plan);
}
END_TEST

START_TEST (field_describes_itself)
{
  g_autofree char *values_text = plan_field_values ((PlanField)_i);
  const char *summary = plan_field_summary ((PlanField)_i);
  ck_assert_uint_gt (strlen (values_text), 0);
  ck_assert_uint_gt (strlen (summary), 0);
  ck_assert_uint_gt (strlen (plan_field_name ((PlanField)_i)), 0);
}
END_TEST

START_TEST (fields_are_of_models)
{
  g_autoptr (PlanModel) dense = plan_model_new (MODEL, NULL);
  g_autoptr (PlanModel) experts = plan_model_new ("mixtral-8x7b", NULL);
  const char *const name = plan_field_name ((PlanField)_i);
  const gboolean is_of_experts = g_str_has_prefix (name, "moe_") || g_str_equal (name, "etp")
                                 || g_str_equal (name, "router_dtype")
                                 || g_str_equal (name, "ep_overlap")
                                 || g_str_equal (name, "ep_delay_wgrad");
  ck_assert (plan_field_is_of ((PlanField)_i, experts));
  ck_assert_int_eq (plan_field_is_of ((PlanField)_i, dense), !is_of_experts);
}
END_TEST

START_TEST (values_as_help_shows_them)
{
  static const struct
  {
    PlanField field;
    const char *text;
  } shown[] = {
    { PLAN_NCCL_UB, "off|on" },
    { PLAN_TP, "integer >= 1" },
    { PLAN_OFFLOAD_LAYERS, "integer >= 0" },
    { PLAN_OFFLOAD_OPTIMIZER, "0 to 1" },
    { PLAN_MOE_IMBALANCE, "number >= 1" },
    { PLAN_MOE_CAPACITY, "none, or number > 0" },
    { PLAN_COMM_UNIT, "auto, or integer >= 1" },
    { PLAN_PP_LAYOUT, "auto, or a layout as Et*3|(t*2|)*6tL" },
    { PLAN_NCCL, "major.minor" },
    { PLAN_OFFLOAD_MODULES,
      "none, or attn_norm|qkv_linear|core_attn|attn_proj|mlp_norm|expert_fc1|moe_act joined by +" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (shown); i++)
    {
      g_autofree char *text = plan_field_values (shown[i].field);
      ck_assert_str_eq (text, shown[i].text);
    }
  ck_assert_str_eq (plan_field_names (PLAN_STRATEGY)[1], "optim");
  ck_assert_str_eq (plan_field_names (PLAN_STACK)[PLAN_STACK_NATIVE], "native");
  ck_assert_ptr_null (plan_field_names (PLAN_TP));
}
END_TEST

START_TEST (text_is_read)
{
  Plan plan;
  ck_assert (
      plan_parse ("# a plan\r\n\n  strategy = optim  # ZeRO-1\r\ngbs=128", "p", &plan, NULL));
  ck_assert_int_eq (plan.value[PLAN_STRATEGY], PLAN_STRATEGY_OPTIM);
  g_autofree char *text = plan_print (&plan);
  ck_assert_str_eq (text, "strategy=optim\ngbs=128\n");
}
END_TEST

static const struct
{
  const char *text, *message;
} bad_texts[] = {
  { "gbs", "p:1: 'gbs' is not of the form field=value" },
  { "\n\n=5", "p:3: '' is not a field of a plan" },
  { "gbs=1\ngbs=1", "p:2: gbs: given twice" },
  { "gbs=1\n#\ntp=x", "p:3: tp: 'x' is not a whole number" },
  { "gbs=\xff", "p: byte 4 is not UTF-8 text" },
};

START_TEST (refuses_text)
{
  g_autoptr (GError) error = NULL;
  Plan plan;
  ck_assert (!plan_parse (bad_texts[_i].text, "p", &plan, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (strstr (error->message, bad_texts[_i].message), "%s", error->message);
}
END_TEST

START_TEST (hash_is_that_of_the_text)
{
  const Plan plan = plan_of ("gbs=128");
  g_autofree char *hash = plan_hash (&plan);
  g_autofree char *whole = g_compute_checksum_for_string (G_CHECKSUM_SHA256, "gbs=128\n", -1);
  ck_assert_uint_eq (strlen (hash), 16);
  ck_assert (g_str_has_prefix (whole, hash));
}
END_TEST

START_TEST (resolving_fills_in)
{
  Plan plan;
  ck_assert (resolve (MODEL, "dgx-h100:2", "gbs=64 main_grads=auto grad_comm=auto", &plan, NULL));
  ck_assert_int_eq (plan.value[PLAN_MBS], 1);
  ck_assert_int_eq (plan.value[PLAN_SEQ], 8192);
  ck_assert_int_eq (plan.value[PLAN_SP], PLAN_SP_OFF);
  ck_assert_int_eq (plan.value[PLAN_MAIN_GRADS], PLAN_MAIN_GRADS_BF16);
  ck_assert_int_eq (plan.value[PLAN_GRAD_COMM], PLAN_GRAD_COMM_BF16);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:2", NULL);
  ck_assert_int_eq (plan_data_parallel (&plan, cluster), 16);
  ck_assert_int_eq (plan_micro_batches (&plan, cluster), 4);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_COMPUTE), PLAN_DTYPE_BF16);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_MAIN_PARAMS), PLAN_DTYPE_FP32);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_GRAD_COMM), PLAN_DTYPE_BF16);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_EXP_AVG), PLAN_DTYPE_FP32);
}
END_TEST

/* A layout says how many virtual stages there are, and becomes other fields where these say it. */
START_TEST (layouts_are_settled)
{
  static const struct
  {
    const char *words, *settled;
  } known[] = {
    { "pp=2 pp_layout=Et*20|t*9|t|t*2L", "pp=2\nvpp=2\npp_layout=Et*20|t*9|t|t*2L\n" },
    { "pp=2 pp_layout=Ett*14|t*17L", "pp=2\npp_first_layers=15\npp_last_layers=17\n" },
    { "pp=2 pp_layout=Et*8|(t*8|)*2t*8L", "pp=2\nvpp=2\n" },
    { "pp=2 vpp=2 pp_layout=Et*9|t*9|t*9|t*5L", "pp=2\nvpp=2\npp_last_short=4\n" },
    { "pp=4 pp_layout=Et*3|t*20|t*3|t*6L", "pp=4\npp_layout=Et*3|t*20|t*3|t*6L\n" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    {
      Plan plan;
      g_autofree char *all
          = g_strconcat ("gbs=64 seq=64 stack=megatron strategy=optim ", known[i].words, NULL);
      ck_assert (resolve (MODEL, "dgx-h100:2", all, &plan, NULL));
      g_autofree char *text = plan_print (&plan);
      g_autofree char *wanted = g_strdup_printf (
          "stack=megatron\nstrategy=optim\n%ssp=off\nmbs=1\ngbs=64\nseq=64\n", known[i].settled);
      ck_assert_str_eq (text, wanted);
    }
}
END_TEST

START_TEST (auto_follows_compute)
{
  Plan plan;
  ck_assert (resolve (MODEL, "h100-80gb:1", "gbs=1 compute=fp32 main_grads=auto grad_comm=auto",
                      &plan, NULL));
  ck_assert_int_eq (plan.value[PLAN_MAIN_GRADS], PLAN_MAIN_GRADS_FP32);
  ck_assert (resolve (MODEL, "h100-80gb:1", "gbs=1 main_grads=fp32 grad_comm=auto", &plan, NULL));
  ck_assert_int_eq (plan.value[PLAN_GRAD_COMM], PLAN_GRAD_COMM_FP32);
}
END_TEST

START_TEST (dtype_of_every_value)
{
  Plan plan = plan_of ("compute=fp16 main_params=auto exp_avg=fp8 exp_avg_sq=bf16");
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_COMPUTE), PLAN_DTYPE_FP16);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_MAIN_PARAMS), PLAN_DTYPE_FP16);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_EXP_AVG), PLAN_DTYPE_E4M3);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_EXP_AVG_SQ), PLAN_DTYPE_BF16);
  plan = plan_of ("compute=mxfp8 main_params=auto grad_comm=fp16");
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_COMPUTE), PLAN_DTYPE_MXFP8);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_MAIN_PARAMS), PLAN_DTYPE_BF16);
  ck_assert_int_eq (plan_field_dtype (&plan, PLAN_GRAD_COMM), PLAN_DTYPE_FP16);
}
END_TEST

START_TEST (gbs_is_needed)
{
  g_autoptr (GError) error = NULL;
  Plan plan;
  ck_assert (!resolve (MODEL, "dgx-h100", "mbs=1", &plan, &error));
  ck_assert_str_eq (error->message,
                    "gbs is needed: --gbs N, in sequences per step over all devices");
}
END_TEST

START_TEST (longer_sequences_than_the_model_s_are_allowed)
{
  Plan plan;
  ck_assert (resolve (MODEL, "dgx-h100", "gbs=8 seq=16384", &plan, NULL));
  ck_assert_int_eq (plan.value[PLAN_SEQ], 16384);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("plan");
  TCase *tcase = tcase_create ("plan");
  tcase_add_test (tcase, defaults_print_as_nothing);
  tcase_add_loop_test (tcase, value_is_read_and_printed, 0, G_N_ELEMENTS (values));
  tcase_add_loop_test (tcase, others_words_are_understood, 0, G_N_ELEMENTS (words));
  tcase_add_loop_test (tcase, refuses_value, 0, G_N_ELEMENTS (bad_values));
  tcase_add_loop_test (tcase, field_describes_itself, 0, PLAN_N_FIELDS);
  tcase_add_loop_test (tcase, fields_are_of_models, 0, PLAN_N_FIELDS);
  tcase_add_test (tcase, values_as_help_shows_them);
  tcase_add_test (tcase, text_is_read);
  tcase_add_loop_test (tcase, refuses_text, 0, G_N_ELEMENTS (bad_texts));
  tcase_add_test (tcase, hash_is_that_of_the_text);
  tcase_add_test (tcase, resolving_fills_in);
  tcase_add_test (tcase, auto_follows_compute);
  tcase_add_test (tcase, layouts_are_settled);
  tcase_add_test (tcase, dtype_of_every_value);
  tcase_add_test (tcase, gbs_is_needed);
  tcase_add_test (tcase, longer_sequences_than_the_model_s_are_allowed);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
