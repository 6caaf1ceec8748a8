/* SPDX-License-Identifier: Apache-2.0 */
/* What is gathered of models with experts whose weights are quantised, in which formats, and what
 * is kept of it, counted from the models' dimensions. */
#include "config.h"

#include "tests/prop/count-kinds.h"
#include "tests/unit/test-lower-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define SOME_DENSE \
  "hidden=256,ffn=640,heads=8,vocab=1000,max_seq=512,experts=16,topk=2,expert_ffn=192,"
#define SOME_LATENT \
  "family=deepseek_v3," SOME_DENSE "kv_heads=8,head_dim=96,q_lora=128,kv_lora=64,nope_dim=64," \
  "rope_dim=32,v_dim=96,shared_ffn=128,"

/* Models of which some layers have no experts, or all have. */
static const char *const gathered[]
    = { SOME_LATENT "layers=7,dense_layers=3,mtp=0", SOME_LATENT "layers=4,dense_layers=1,mtp=1",
        "family=qwen3_moe," SOME_DENSE "kv_heads=2,head_dim=64,layers=6,moe_every=2,"
        "shared_ffn=128,shared_gate=on",
        "family=qwen3_moe," SOME_DENSE "kv_heads=4,head_dim=64,layers=5" };

/* Elements of a layer: in products' weights, or in all else but its experts. */
static double
elements_of_layer (const PlanModel *m, gboolean has_experts, gboolean in_products)
{
  const gint64 h = m->hidden, wide = m->heads * m->head_dim;
  const gint64 attention
      = m->kv_lora > 0 ? h * m->q_lora + m->q_lora * wide + h * (m->kv_lora + m->rope_dim)
                             + m->heads * (m->kv_lora * (m->nope_dim + m->v_dim) + m->v_dim * h)
                       : h * (2 * wide + 2 * m->kv_heads * m->head_dim);
  const gint64 norms = 2 * h + (m->kv_lora > 0 ? m->q_lora + m->kv_lora : 2 * m->head_dim);
  const gint64 router = (m->experts + (m->shared_gate ? 1 : 0)) * h;
  return (double)(in_products ? attention + 3 * h * (has_experts ? m->shared_ffn : m->ffn)
                              : norms + (has_experts ? router : 0));
}

static const PlanBuffer *
buffer_of (const TestCase *c, const char *what, const char *kind)
{
  g_autofree char *name = g_strconcat (what, ".", kind, NULL);
  for (guint i = 0; i < plan_schedule_n_buffers (c->schedule); i++)
    if (strcmp (plan_schedule_buffer (c->schedule, i)->name, name) == 0)
      return plan_schedule_buffer (c->schedule, i);
  return NULL;
}

/* Bytes that the setup takes of an array. */
static double
kept_of (const TestCase *c, const char *what, const char *kind)
{
  const PlanBuffer *buffer = buffer_of (c, what, kind);
  PlanCursor cursor;
  double kept = 0;
  plan_cursor_start (&cursor, c->schedule, PLAN_SECTION_SETUP);
  for (const PlanOp *op; buffer && (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ALLOC
        && plan_schedule_buffer (c->schedule, (guint)op->refs[0].array) == buffer)
      kept += (double)plan_dtype_bytes (buffer->dtype, buffer->elements);
  return kept;
}

/* What a rank gathers of an array in a step's passes: the elements of a model's layers, and padding
 * of less than a chunk for each rank and tensor; of which it keeps its part. */
static void
check_gathered (const TestCase *c, const char *const *names, const char *kind, PlanDtype dtype,
                double passes, double raw, double padding, double ranks)
{
  g_autofree char *name = g_strconcat (names[0], ".", kind, NULL);
  const double sum = (double)gathered_into (c->schedule, name);
  ck_assert_ptr_nonnull (buffer_of (c, names[0], kind));
  ck_assert_int_eq (buffer_of (c, names[0], kind)->dtype, dtype);
  ck_assert_msg (sum >= passes * raw && sum <= passes * (raw + padding * (ranks + 16)),
                 "%s: %.0f elements, not %.0f passes of %.0f", name, sum, passes, raw);
  const double bytes = plan_dtype_bits (dtype) / 8.0;
  ck_assert_double_eq (kept_of (c, names[1], kind) * ranks * passes, sum * bytes);
}

static const char *const row_names[] = { "weights", "shard" };
static const char *const column_names[] = { "columns", "column_shard" };

static const struct
{
  const char *settings, *cluster;
  gboolean has_columns, turns; /* a copy along columns is gathered; is made by transposing */
  double again;                /* passes that gather rows once more: experts', all others' */
  double again_others;
} formats[] = {
  { "compute=fp8-tensorwise param_gather=fp8", "dgx-h100:2", FALSE, TRUE, 0, 0 },
  { "compute=fp8-blockwise param_gather=fp8", "dgx-h100:2", FALSE, TRUE, 0, 0 },
  { "compute=fp8-tensorwise param_gather=fp8", "dgx-b200:2", FALSE, FALSE, 0, 0 },
  { "compute=mxfp8 param_gather=mxfp8", "dgx-b200:2", TRUE, FALSE, 0, 0 },
  { "compute=mxfp8 param_gather=mxfp8 recompute=full", "dgx-b200:2", TRUE, FALSE, 1, 1 },
  { "compute=mxfp8 param_gather=mxfp8 recompute=selective recompute_modules=moe", "dgx-b200:2",
    TRUE, FALSE, 1, 1 },
  { "compute=mxfp8 param_gather=mxfp8 recompute=selective recompute_modules=moe_act", "dgx-b200:2",
    TRUE, FALSE, 0, 1 },
};

/* With weights gathered quantised, those of products travel in eight bits, experts among the ranks
 * that hold the same, and norms, routers and gates as activations are; layers with and without
 * experts in buckets of their own. Each rank keeps its shards and quantises those of products
 * alone. In mxfp8 a copy along columns comes for the backward pass, and rows once more for
 * recompute, of experts where it runs their products. */
START_TEST (weights_are_gathered_in_their_formats)
{
  static const gint64 eps[] = { 1, 2, 8, 16 };
  const gint64 ep = eps[_i / 4 % 4];
  const guint f = (guint)_i / 16;
  TestCase c;
  g_autofree char *words
      = g_strdup_printf ("stack=megatron-fsdp gbs=32 mbs=1 seq=128 comm_unit=1 ep=%d %s", (int)ep,
                         formats[f].settings);
  test_case_init (&c, gathered[_i % 4], formats[f].cluster, words);
  const double moe = (double)count_moe (c.model), ranks = 16, m = 2;
  const double dense = (double)(c.model->layers + c.model->mtp) - moe;
  const double products = moe * elements_of_layer (c.model, TRUE, TRUE);
  const double without = dense * elements_of_layer (c.model, FALSE, TRUE);
  const double experts
      = moe * (double)(c.model->experts / ep * 3 * c.model->hidden * c.model->expert_ffn);
  const double plain = moe * elements_of_layer (c.model, TRUE, FALSE);
  const double plain_dense = dense * elements_of_layer (c.model, FALSE, FALSE);
  const double chunk = 3840; /* a multiple of all rows' lengths */
  const double alike = ranks / (double)ep;
  const PlanDtype narrow = PLAN_DTYPE_E4M3, wide = PLAN_DTYPE_BF16;
  const gboolean columns = formats[f].has_columns;
  /* Layers without experts do not recompute what only those with experts have. */
  const gboolean is_moe = strstr (formats[f].settings, "modules=moe") != NULL;
  const double twice = m * (columns ? 1 + formats[f].again_others : 2);
  const double expert_passes = m * (columns ? 1 + formats[f].again : 2);
  const double dense_passes = is_moe ? m : twice;
  check_gathered (&c, row_names, "layer", narrow, twice, products, moe * chunk, ranks);
  check_gathered (&c, row_names, "plain", wide, 2 * m, plain, moe * 256, ranks);
  if (ep < 16)
    check_gathered (&c, row_names, "experts", narrow, expert_passes, experts, moe * 768, alike);
  if (ep < 16 && columns)
    check_gathered (&c, column_names, "experts", narrow, m, experts, moe * 768, alike);
  if (columns)
    check_gathered (&c, column_names, "layer", narrow, m, products, moe * chunk, ranks);
  if (dense > 0)
    {
      check_gathered (&c, row_names, "dense", narrow, dense_passes, without, dense * chunk, ranks);
      check_gathered (&c, row_names, "dense_plain", wide, 2 * m, plain_dense, dense, ranks);
    }
  if (dense > 0 && columns)
    check_gathered (&c, column_names, "dense", narrow, m, without, dense * chunk, ranks);
  PlanCursor cursor;
  double turned = 0, quantised = 0;
  plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      turned += op->kind == PLAN_OP_TRANSPOSE ? (double)(op->dims[0] * op->dims[1]) : 0;
      quantised += op->kind == PLAN_OP_PARAM_QUANTIZE ? (double)op->dims[0] : 0;
    }
  ck_assert_double_eq (turned, formats[f].turns ? 2 * m * (products + without + experts) : 0);
  const double share = (products + without) / ranks + experts / MAX (alike, 1);
  ck_assert_double_ge (quantised, share);
  ck_assert_double_le (quantised, share + (moe + dense) * 4 * chunk);
  const double scales = (products + without + experts) / 16;
  if (columns) /* a byte for 32 elements, along rows and along columns, of all on every rank */
    ck_assert_double_eq (kept_of (&c, "scales", "layer") + kept_of (&c, "scales", "experts")
                             + kept_of (&c, "scales", "dense"),
                         scales);
  test_case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower-gathers");
  TCase *tcase = tcase_create ("gathers");
  tcase_set_timeout (tcase, 60);
  tcase_add_loop_test (tcase, weights_are_gathered_in_their_formats, 0,
                       16 * G_N_ELEMENTS (formats));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
