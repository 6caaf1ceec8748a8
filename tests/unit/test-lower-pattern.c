/* SPDX-License-Identifier: Apache-2.0 */
/* Layers by a pattern: their ops, what they keep, what they take, and where parameters lie. */
#include "config.h"

#include "tests/unit/test-lower-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS "gbs=8 mbs=1 seq=1024 stack=megatron strategy=optim recompute=none"

/* Op by op as Megatron-LM runs layers (megatron/core/ssm/mamba_mixer.py, mlp_layer.py); and
 * backward, where the convolution is made again before the scan. */
START_TEST (layers_run_these_ops)
{
  TestCase c;
  test_case_init (&c, "nemotron-h-4b,layers=3,pattern=M-*", "dgx-h100:1", SETTINGS);
  static const char *const parts[] = {
    " embed rmsnorm gemm ssm_conv ssm_scan group_norm gemm add rmsnorm gemm activate gemm add "
    "rmsnorm gemm attention gemm add ",
    " gemm gemm accumulate attention_bwd gemm gemm accumulate rmsnorm_bwd accumulate add gemm gemm "
    "accumulate activate_bwd gemm gemm accumulate rmsnorm_bwd accumulate add ",
    " gemm gemm accumulate group_norm_bwd accumulate ssm_conv ssm_scan_bwd accumulate accumulate "
    "accumulate ssm_conv_bwd accumulate accumulate gemm gemm accumulate rmsnorm_bwd accumulate add "
    "embed_bwd ",
  };
  check_ops_are_there (&c, parts, G_N_ELEMENTS (parts));
  test_case_clear (&c);
}
END_TEST

static const PlanBuffer *
buffer_named (const TestCase *c, const char *name)
{
  for (guint i = 0; i < plan_schedule_n_buffers (c->schedule); i++)
    if (strcmp (plan_schedule_buffer (c->schedule, i)->name, name) == 0)
      return plan_schedule_buffer (c->schedule, i);
  ck_abort_msg ("no %s", name);
}

/* Nemotron 3 Nano, weights gathered in eight bits: of each kind of layer the matrices of products,
 * and in another bucket all that is neither, in bf16. */
START_TEST (weights_are_gathered_in_their_formats)
{
  TestCase c;
  test_case_init (&c, "nemotron-3-nano-30b-a3b", "dgx-h100:1",
                  "gbs=8 mbs=1 seq=1024 ep=8 compute=fp8-tensorwise param_gather=fp8");
  const PlanModel *m = c.model;
  const gint64 h = m->hidden, inner = m->ssm.heads * m->ssm.head_dim, heads = m->ssm.heads;
  const gint64 turned = inner + 2 * m->ssm.groups * m->ssm.state;
  const gint64 wide = m->heads * m->head_dim, keys = m->kv_heads * m->head_dim;
  const gint64 common = 172032; /* least multiple of rows of 2688 and 4096 elements */
  const struct
  {
    const char *kind;
    gint64 products, others;
  } expected[] = {
    { "recurrent", (inner + turned + heads) * h + inner * h,
      (m->ssm.conv + 1) * turned + 3 * heads + inner + h },
    { "attention", (wide + 2 * keys) * h + wide * h, h },
    { "layer", 2 * m->shared_ffn * h, (m->experts + 1) * h },
  };
  for (guint i = 0; i < G_N_ELEMENTS (expected); i++)
    for (guint is_plain = 0; is_plain < 2; is_plain++)
      {
        const gboolean is_layer = g_str_equal (expected[i].kind, "layer");
        g_autofree char *name = is_plain && is_layer ? g_strdup ("weights.plain")
                                                     : g_strconcat ("weights.", expected[i].kind,
                                                                    is_plain ? "_plain" : "", NULL);
        const PlanBuffer *buffer = buffer_named (&c, name);
        const gint64 raw = is_plain ? expected[i].others : expected[i].products;
        ck_assert_int_eq (buffer->dtype, is_plain ? PLAN_DTYPE_BF16 : PLAN_DTYPE_E4M3);
        /* Each of eight ranks has whole rows of all lengths. */
        ck_assert_msg ((gint64)buffer->elements >= raw
                           && (gint64)buffer->elements < raw + 8 * common,
                       "%s: %" G_GUINT64_FORMAT " elements, not %" G_GINT64_FORMAT, name,
                       buffer->elements, raw);
      }
  test_case_clear (&c);
}
END_TEST

/* Experts that read fewer columns have a product before tokens are sorted and one behind their sum,
 * each with the weight gradient that a product has; shared experts read all columns
 * (moe_layer.py, preprocess and postprocess). */
START_TEST (narrow_experts_run_these_ops)
{
  TestCase c;
  test_case_init (&c,
                  "nemotron-3-super-120b-a12b,layers=2,pattern=ME,shared_ffn=0,experts=8,topk=2",
                  "dgx-h100:1", SETTINGS " ep=1 router_dtype=bf16");
  static const char *const parts[] = {
    " embed rmsnorm gemm ssm_conv ssm_scan group_norm gemm add rmsnorm gemm route gemm row_map "
    "permute "
    "row_map permute grouped_gemm expert_activate grouped_gemm unpermute unpermute gemm add "
    "rmsnorm ",
    " gemm gemm accumulate permute permute grouped_gemm grouped_gemm accumulate "
    "expert_activate_bwd "
    "grouped_gemm grouped_gemm accumulate unpermute unpermute gemm gemm accumulate route_bwd gemm "
    "gemm "
    "accumulate accumulate rmsnorm_bwd accumulate add ",
  };
  check_ops_are_there (&c, parts, G_N_ELEMENTS (parts));
  test_case_clear (&c);
}
END_TEST

/* Nemotron 3 Super, one layer of experts at 1024 tokens on one rank: what it keeps beside what it
 * would with experts of all columns. Rows are 22 a token; the sum of a token's is kept for the
 * product behind it. */
START_TEST (narrow_experts_keep_narrow_rows)
{
  const gint64 tokens = 1024, rows = 22 * tokens;
  guint64 kept[2];
  for (guint i = 0; i < 2; i++)
    {
      TestCase c;
      test_case_init (&c,
                      i ? "nemotron-3-super-120b-a12b,layers=2,pattern=ME"
                        : "nemotron-3-super-120b-a12b,layers=2,pattern=ME,expert_hidden=0",
                      "dgx-h100:1", SETTINGS);
      kept[i] = kept_bytes (&c, PLAN_LAYER_PART | PLAN_LAYER_EXPERTS);
      test_case_clear (&c);
    }
  ck_assert_int_eq ((gint64)(kept[1] - kept[0]), 2 * (rows * (1024 - 4096) + tokens * 1024));
}
END_TEST

/* Nemotron-H 8B at 8192 tokens on two ranks, tensor by tensor: columns in bf16 and in fp32. */
START_TEST (keeps_what_backward_passes_read)
{
  TestCase c;
  test_case_init (&c, "nemotron-h-8b", "dgx-h100:1",
                  "gbs=8 mbs=1 seq=8192 tp=2 sp=off stack=megatron strategy=optim recompute=none");
  const guint64 rows = 8192, x = 4096, norm = 4096, inner = 64 * 64;
  const guint64 projection = inner + inner + 2 * 4 * 128 + 64;
  const guint64 ungated = inner, gated = inner, normed = inner, groups = 4;
  const guint64 mamba = x + norm + projection + ungated + gated + normed;
  ck_assert_uint_eq (kept_bytes (&c, PLAN_LAYER_PART | PLAN_LAYER_RECURRENT),
                     rows * (2 * mamba + 4 * (1 + groups)));
  const guint64 qkv = (16 + 4 + 4) * 128, attention = x + norm + qkv + 16 * 128;
  ck_assert_uint_eq (kept_bytes (&c, PLAN_LAYER_PART), rows * (2 * attention + 4 * (1 + 16)));
  const guint64 mlp = x + norm + 2 * (21504 / 2);
  ck_assert_uint_eq (kept_bytes (&c, PLAN_LAYER_MLP), rows * (2 * mlp + 4));
  test_case_clear (&c);
}
END_TEST

/* Bytes that the scan takes beside, counted by tensors of _mamba_chunk_scan_combined_fwd and _bwd:
 * Nemotron-H 8B, 64 chunks of 128 tokens. */
START_TEST (takes_room_to_work_in)
{
  TestCase c;
  test_case_init (&c, "nemotron-h-8b", "dgx-h100:1",
                  "gbs=8 mbs=1 seq=8192 stack=megatron strategy=optim recompute=none");
  const guint64 rows = 8192, heads = 128, inner = heads * 64, chunks = 64;
  const guint64 decays = 4 * rows * heads, steps = 4 * rows * heads, copy = 2 * rows * heads;
  const guint64 states = chunks * heads * 64 * 128, pairs = 4 * chunks * 8 * 128 * 128;
  const guint64 outputs = 2 * 2 * rows * inner;
  const guint64 passing = 4 * states + 2 * states, scanning = 2 * states + pairs + outputs;
  const PlanValue *values = c.of->graphs.values;
  ck_assert_uint_eq (4 * values[PLAN_VALUE_MIXER_WORK].elements + outputs,
                     decays + steps + MAX (passing, scanning));
  ck_assert_uint_eq (4 * values[PLAN_VALUE_MIXER_WORK_BACK].elements,
                     copy + decays + steps + pairs + 2 * (4 + 2) * states + 2 * rows * inner);
  test_case_clear (&c);
}
END_TEST

/* Layers of each letter have buckets of their own, of so many units and so many elements. */
#define NANO "nemotron-3-nano-30b-a3b"
#define MAMBA(h, inner, heads) \
  ((h) + (2 * (inner) + 2048 + (heads)) * (h) + ((inner) + 2048) * (4 + 1) + 3 * (heads) + (inner) \
   + (inner) * (h))
static const struct
{
  const char *model;
  PlanBucketKind kind;
  gint64 units;
  guint64 elements;
} buckets[] = {
  { NANO, PLAN_BUCKET_LAYER, 23, 2688 + 128 * 2688 + 2 * 2688 * 3712 },
  { NANO, PLAN_BUCKET_EXPERTS, 23, G_GUINT64_CONSTANT (16) * 2 * 2688 * 1856 },
  { NANO, PLAN_BUCKET_RECURRENT, 23, MAMBA (2688, 4096, 64) },
  { NANO, PLAN_BUCKET_ATTENTION, 6, 2688 + 2688 * 128 * (2 * 32 + 2 * 2) },
  { NANO, PLAN_BUCKET_DENSE, 0, 0 },
  { "nemotron-h-8b", PLAN_BUCKET_LAYER, 24, MAMBA (4096, 8192, 128) },
  { "nemotron-h-8b", PLAN_BUCKET_DENSE, 24, 4096 + 2 * 4096 * 21504 },
  { "nemotron-h-8b", PLAN_BUCKET_ATTENTION, 4, 4096 + 4096 * 128 * (2 * 32 + 2 * 8) },
  { "nemotron-h-8b", PLAN_BUCKET_RECURRENT, 0, 0 },
};

START_TEST (letters_have_buckets)
{
  TestCase c;
  test_case_init (&c, buckets[_i].model, "dgx-h100:1",
                  g_str_equal (buckets[_i].model, NANO) ? SETTINGS " ep=8" : SETTINGS);
  const PlanBucket *bucket = &c.of->layout.buckets[buckets[_i].kind];
  ck_assert_int_eq (bucket->units, buckets[_i].units);
  ck_assert_uint_eq (bucket->raw, buckets[_i].elements);
  test_case_clear (&c);
}
END_TEST

/* Seconds of the scan: its products at a share of the GPU's bf16 rate, and bytes at its memory's:
 * projection, outputs and convolved inputs once, the room to work in twice, and with two sequences
 * what brings tokens into another order and back. */
START_TEST (scan_takes_products_and_traffic)
{
  static const PlanStack plain = { .memory.allocation_bytes = 1 };
  const double batch = 1 + _i, rows = batch * 8192, inner = 4096, shared = 2048, work = 1e8;
  g_autofree char *text = g_strdup_printf (
      "schedule 2 rank=0 ranks=1\n"
      "buffer wide elements=%.0f dtype=bf16 category=activations\n"
      "buffer out elements=%.0f dtype=bf16 category=activations\n"
      "buffer heads elements=64 dtype=bf16 category=activations\n"
      "buffer work elements=100000000 dtype=fp32 category=activations\n"
      "section setup\nssm_scan compute out=out ungated=out in=wide gate=wide step=heads "
      "decay=heads "
      "skip=heads work=work batch=%.0f seq=8192 heads=64 head_dim=64 groups=8 state=128 "
      "room=100000000\nsection step\nsection teardown\n",
      rows * (2 * inner + shared + 64), rows * inner, batch);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "test", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  const SimCostInput input = { .schedule = schedule, .cluster = cluster, .stack = &plain };
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  const double flops = 2 * rows * (128 * 1024 + inner * (64 + 256));
  const double projection = 2 * inner + shared + 64;
  const double bytes = 2 * rows * (projection + 2 * inner) + 6 * 64 + 2 * 4 * work
                       + (_i > 0 ? 4 * rows * (projection + inner) : 0);
  const double ns = flops / (989.4e12 * 0.136) * 1e9 + bytes / (3.35e12 * 0.9) * 1e9;
  const double ratio = (double)sim_cost_ns (cost, 0) / ns;
  ck_assert_msg (ABS (ratio - 1) < 0.03, "%.4f of %.0f ns", ratio, ns);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower-pattern");
  TCase *tcase = tcase_create ("lower-pattern");
  tcase_add_test (tcase, layers_run_these_ops);
  tcase_add_test (tcase, weights_are_gathered_in_their_formats);
  tcase_add_test (tcase, narrow_experts_run_these_ops);
  tcase_add_test (tcase, narrow_experts_keep_narrow_rows);
  tcase_add_test (tcase, keeps_what_backward_passes_read);
  tcase_add_test (tcase, takes_room_to_work_in);
  tcase_add_loop_test (tcase, letters_have_buckets, 0, G_N_ELEMENTS (buckets));
  tcase_add_loop_test (tcase, scan_takes_products_and_traffic, 0, 2);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
