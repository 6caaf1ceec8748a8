/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention by the gated delta rule: its ops, what they keep, and what they take. */
#include "config.h"

#include "tests/unit/test-lower-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Op by op as Megatron-LM runs a layer (megatron/core/ssm/gated_delta_net/gdn.py): projection,
 * convolution, norms of queries and keys, gates, the rule, gated norm, projection; and backward. */
START_TEST (layers_run_these_ops)
{
  TestCase c;
  test_case_init (&c, "qwen3.5-0.8b,layers=2,attn_every=2", "dgx-h100:1",
                  "gbs=8 mbs=1 seq=1024 stack=megatron strategy=optim recompute=none");
  static const char *const parts[] = {
    " embed rmsnorm gemm delta_conv delta_keys delta_gates delta_rule delta_norm gemm add rmsnorm "
    "gemm swiglu gemm add ",
    " rmsnorm gemm split_cols head_norm rope attention gate_heads gemm add ",
    " gemm gemm accumulate gate_heads_bwd attention_bwd rope head_norm_bwd accumulate accumulate "
    "split_cols_bwd gemm gemm accumulate rmsnorm_bwd ",
    " gemm gemm accumulate delta_norm_bwd accumulate delta_rule_bwd delta_gates_bwd accumulate "
    "accumulate delta_keys_bwd delta_conv_bwd accumulate gemm gemm accumulate rmsnorm_bwd "
    "accumulate add embed_bwd ",
  };
  check_ops_are_there (&c, parts, G_N_ELEMENTS (parts));
  test_case_clear (&c);
}
END_TEST

/* Qwen3.5-9B at 4096 tokens, tensor by tensor: columns in bf16 and in fp32. */
START_TEST (keeps_what_backward_passes_read)
{
  TestCase c;
  test_case_init (&c, "qwen3.5-9b", "dgx-h100:1",
                  "gbs=8 mbs=1 seq=4096 stack=megatron strategy=optim recompute=none");
  const guint64 rows = 4096, x = 4096, norm = 4096, mlp = 2 * 12288 + 12288;
  const guint64 projection = 2 * 16 * 128 + 2 * 32 * 128 + 2 * 32, normed_keys = 2 * 16 * 128;
  const guint64 repeated = 3 * 32 * 128, gate = 32 * 128, strength = 32, inverse = 64 * 32;
  const guint64 out = 32 * 128, normed = 32 * 128, gated = 32 * 128;
  const guint64 linear = x + norm + projection + normed_keys + repeated + gate + strength + inverse
                         + out + normed + gated + x + norm + mlp;
  const guint64 linear_wide = 1 + 32 /* keys */ + 32 /* decays */ + 32 /* heads */ + 1;
  ck_assert_uint_eq (kept_bytes (&c, PLAN_LAYER_RECURRENT), rows * (2 * linear + 4 * linear_wide));
  const guint64 qkv = (16 + 4 + 4) * 256, attention = 16 * 256;
  const guint64 full = x + norm + 2 * qkv + 3 * attention + x + norm + mlp;
  const guint64 full_wide = 1 + 16 + 4 /* heads' norms */ + 16 /* lse */ + 1;
  ck_assert_uint_eq (kept_bytes (&c, 0), rows * (2 * full + 4 * full_wide));
  test_case_clear (&c);
}
END_TEST

/* ms with flash-linear-attention 0.5.1 at 32768 tokens and heads of 128 (FlashQLA's
 * benchmark/benchmark_results at 050c6bbe). */
static const struct
{
  const char *cluster;
  gint64 heads;
  gboolean is_bwd;
  double ms;
} measured[] = {
  { "h200-141gb:1", 8, FALSE, 0.902 }, { "h200-141gb:1", 64, FALSE, 3.331 },
  { "h200-141gb:1", 4, TRUE, 2.311 },  { "h200-141gb:1", 8, TRUE, 2.743 },
  { "gb200-nvl72", 8, FALSE, 1.016 },  { "gb200-nvl72", 64, FALSE, 2.943 },
  { "gb200-nvl72", 4, TRUE, 2.640 },   { "gb200-nvl72", 8, TRUE, 3.068 },
};

START_TEST (takes_as_measured)
{
  static const PlanStack plain = { .memory.allocation_bytes = 1 };
  const gint64 seq = 32768, heads = measured[_i].heads, chunks = seq / 64;
  const gint64 per_head = seq * 128, states = chunks * heads * 128 * 128;
  g_autoptr (GString) text = g_string_new ("schedule 2 rank=0 ranks=1\n");
  const struct
  {
    const char *name, *dtype;
    gint64 elements;
  } buffers[] = {
    { "out", "bf16", heads * per_head },
    { "inverse", "bf16", heads * seq * 64 },
    { "qkv", "bf16", 3 * heads * per_head },
    { "decay", "fp32", heads * seq },
    { "strength", "bf16", heads * seq },
    { "work", "bf16", 3 * heads * per_head + states },
    { "back", "bf16", 6 * heads * per_head + 2 * states },
  };
  for (guint i = 0; i < G_N_ELEMENTS (buffers); i++)
    g_string_append_printf (
        text, "buffer %s elements=%" G_GINT64_FORMAT " dtype=%s category=activations\n",
        buffers[i].name, buffers[i].elements, buffers[i].dtype);
  g_string_append_printf (
      text, "section setup\n%s batch=1 seq=%d heads=%d key_dim=128 value_dim=128\n%s",
      measured[_i].is_bwd
          ? "delta_rule_bwd compute dqkv=qkv ddecay=decay dstrength=strength dout=out "
            "inverse=inverse qkv=qkv decay=decay strength=strength work=back"
          : "delta_rule compute out=out inverse=inverse qkv=qkv decay=decay strength=strength "
            "work=work",
      (int)seq, (int)heads, "section step\nsection teardown\n");
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text->str, "test", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autoptr (PlanCluster) cluster = plan_cluster_new (measured[_i].cluster, NULL);
  const SimCostInput input = { .schedule = schedule, .cluster = cluster, .stack = &plain };
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  const double ratio = 1e-6 * (double)sim_cost_ns (cost, 0) / measured[_i].ms;
  ck_assert_msg (ABS (ratio - 1) < 0.08, "%.3f", ratio);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower-delta");
  TCase *tcase = tcase_create ("lower-delta");
  tcase_add_test (tcase, layers_run_these_ops);
  tcase_add_test (tcase, keeps_what_backward_passes_read);
  tcase_add_loop_test (tcase, takes_as_measured, 0, G_N_ELEMENTS (measured));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
