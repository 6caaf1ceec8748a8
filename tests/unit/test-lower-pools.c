/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of buffers where some layers have no experts: which units they serve, what they take, and
 * how units beside them come and go. */
#include "config.h"

#include "tests/unit/test-lower-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define LATENT \
  "family=deepseek_v3,hidden=256,ffn=640,heads=8,kv_heads=8,head_dim=96,q_lora=128,kv_lora=64," \
  "nope_dim=64,rope_dim=32,v_dim=96,vocab=1000,max_seq=512,experts=16,topk=2,expert_ffn=192," \
  "shared_ffn=128,"
#define GROUPED \
  "family=qwen3_moe,hidden=256,ffn=640,heads=8,kv_heads=2,head_dim=64,vocab=1000,max_seq=512," \
  "experts=16,topk=2,expert_ffn=192,"
#define SETTINGS "gbs=32 mbs=1 seq=128 stack=megatron-fsdp double_buffer=on recompute=none "
#define MICRO_BATCHES 2

static const struct
{
  const char *model, *settings;
  gboolean is_dense; /* the pool serves layers without experts */
} rows[] = {
  { LATENT "layers=7,dense_layers=3,mtp=0", "", FALSE },
  { LATENT "layers=7,dense_layers=3,mtp=0", "compute=fp8-tensorwise param_gather=fp8", FALSE },
  { LATENT "layers=7,dense_layers=3,mtp=1", "ep=4 nccl_ub=on", FALSE },
  { LATENT "layers=7,dense_layers=2,mtp=0", "ep=4 compute=mxfp8 param_gather=mxfp8", FALSE },
  { LATENT "layers=7,dense_layers=4,mtp=0", "ep=4 compute=mxfp8 param_gather=mxfp8", TRUE },
  { LATENT "layers=7,dense_layers=4,mtp=0", "", TRUE },
  { LATENT "layers=6,dense_layers=3,mtp=0", "ep=2", TRUE }, /* the first of equally many */
  { LATENT "layers=6,dense_layers=3,mtp=1", "ep=2", FALSE },
  { GROUPED "layers=8,moe_every=2", "ep=8", TRUE },
  { GROUPED "layers=7,moe_every=2", "compute=fp8-tensorwise param_gather=fp8", TRUE },
  { GROUPED "layers=4", "ep=2", FALSE },
  { GROUPED "layers=6,moe_every=2", "recompute=full recompute_layers=1 strategy=optim_grads",
    TRUE },
};

static const char *const of_experts[] = { "layer", "plain", "experts" };
static const char *const of_dense[] = { "dense", "dense_plain" };

/* How often an array's buffers are taken in a section. */
static guint
count_taken (const TestCase *c, PlanSection section, const char *what, const char *kind)
{
  g_autofree char *name = g_strconcat (what, ".", kind, NULL);
  PlanCursor cursor;
  guint n = 0;
  plan_cursor_start (&cursor, c->schedule, section);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    n += op->kind == PLAN_OP_ALLOC
         && strcmp (plan_schedule_buffer (c->schedule, (guint)op->refs[0].array)->name, name) == 0;
  return n;
}

/* Units of a kind: layers with experts, or without. */
static guint
count_units (const PlanModel *m, gboolean is_dense)
{
  guint moe = (guint)m->mtp;
  for (gint64 layer = 0; layer < m->layers; layer++)
    moe += layer >= m->dense_layers && (layer + 1) % m->moe_every == 0;
  return is_dense ? (guint)(m->layers + m->mtp) - moe : moe;
}

/* What is gathered of one copy of the weights: it has two sets of buffers that stay, or one for
 * each gather. */
static void
check_copy (const TestCase *c, const char *copy, const char *kind, guint units, guint passes,
            gboolean is_pooled)
{
  g_autofree char *name = g_strconcat (copy, ".", kind, NULL);
  const gboolean gathers = c->of->plan.value[PLAN_STRATEGY] == PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
  guint64 elements = 0;
  for (guint i = 0; i < plan_schedule_n_buffers (c->schedule); i++)
    if (strcmp (plan_schedule_buffer (c->schedule, i)->name, name) == 0)
      elements = plan_schedule_buffer (c->schedule, i)->elements;
  ck_assert_uint_eq (gathered_into (c->schedule, name),
                     elements * units * (gathers ? passes * MICRO_BATCHES : 1));
  if (!gathers || elements == 0)
    return;
  ck_assert_uint_eq (count_taken (c, PLAN_SECTION_SETUP, copy, kind), is_pooled ? 2 : 0);
  ck_assert_uint_eq (count_taken (c, PLAN_SECTION_STEP, copy, kind),
                     is_pooled ? 0 : units * passes * MICRO_BATCHES);
}

static void
check_kind (const TestCase *c, const char *kind, guint units, gboolean is_pooled)
{
  const gint64 gather = c->of->plan.value[PLAN_PARAM_GATHER];
  const gboolean is_plain = g_str_has_suffix (kind, "plain");
  const gboolean has_columns = gather == PLAN_PARAM_GATHER_MXFP8 && !is_plain;
  if (is_plain && gather == PLAN_PARAM_GATHER_COMPUTE)
    return;
  check_copy (c, "weights", kind, units, has_columns ? 1 : 2, is_pooled);
  if (has_columns)
    check_copy (c, "columns", kind, units, 1, is_pooled);
  ck_assert_uint_eq (count_taken (c, PLAN_SECTION_SETUP, "bucket", kind), is_pooled ? 2 : 0);
  ck_assert_uint_eq (count_taken (c, PLAN_SECTION_STEP, "bucket", kind),
                     is_pooled ? 0 : units * MICRO_BATCHES);
}

START_TEST (pools_serve_the_most_units_that_are_alike)
{
  TestCase c;
  g_autofree char *settings = g_strconcat (SETTINGS, rows[_i].settings, NULL);
  g_autofree char *trimmed = g_strdup (g_strchomp (settings));
  test_case_init (&c, rows[_i].model, strstr (trimmed, "mxfp8") ? "dgx-b200:2" : "dgx-h100:2",
                  trimmed);
  g_autoptr (GError) error = NULL;
  ck_assert_msg (plan_schedule_check (c.schedule, &error), "%s", error ? error->message : "");
  const guint moe = count_units (c.model, FALSE), dense = count_units (c.model, TRUE);
  ck_assert_int_eq (rows[_i].is_dense, dense > moe || (dense == moe && moe > 0));
  for (guint i = 0; i < G_N_ELEMENTS (of_experts); i++)
    check_kind (&c, of_experts[i], moe, !rows[_i].is_dense);
  for (guint i = 0; i < G_N_ELEMENTS (of_dense) && dense > 0; i++)
    check_kind (&c, of_dense[i], dense, rows[_i].is_dense);
  test_case_clear (&c);
}
END_TEST

/* Gradients of units beside the pool: two more may be in flight, unless they are more than a
 * communication unit; of a pool there are two sets, whatever the unit
 * (_enforce_double_buffer_limit, wait_for_previous_grad_reduce). */
START_TEST (units_beside_a_pool_are_reduced_in_a_queue)
{
  static const struct
  {
    const char *comm_unit;
    guint most, gathered;
  } limits[] = { { "comm_unit=100000000", 3, 2 }, { "comm_unit=1", 1, 1 } };
  TestCase c;
  g_autofree char *settings = g_strconcat (SETTINGS, limits[_i].comm_unit, NULL);
  test_case_init (&c, LATENT "layers=12,dense_layers=5,mtp=0", "dgx-h100:2", settings);
  ck_assert_uint_eq (most_live (c.schedule, "bucket.dense"), limits[_i].most);
  ck_assert_uint_eq (most_live (c.schedule, "weights.dense"), limits[_i].gathered);
  ck_assert_uint_eq (count_taken (&c, PLAN_SECTION_SETUP, "bucket", "layer"), 2);
  test_case_clear (&c);
}
END_TEST

/* DeepSeek-V3 on 64 ranks, by dimensions: two sets of a layer with experts, in bf16. */
START_TEST (pools_take_two_sets)
{
  TestCase c;
  test_case_init (&c, "deepseek-v3,mtp=0", "dgx-h100:8",
                  "gbs=64 mbs=1 seq=4096 ep=32 stack=megatron-fsdp double_buffer=on grad_comm=bf16 "
                  "recompute=full");
  const double latent = 7168.0 * 1536 + 1536.0 * 128 * 192 + 7168.0 * 576 + 512.0 * 128 * 256
                        + 128.0 * 128 * 7168 + 3 * 7168.0 * 2048 + 256 * 7168.0;
  const double experts = 256.0 / 32 * 3 * 7168 * 2048;
  double taken = 0;
  PlanCursor cursor;
  plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_SETUP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const PlanBuffer *buffer = op->kind == PLAN_OP_ALLOC
                                     ? plan_schedule_buffer (c.schedule, (guint)op->refs[0].array)
                                     : NULL;
      if (buffer && buffer->count == 2
          && (buffer->category == PLAN_CATEGORY_GATHERED
              || buffer->category == PLAN_CATEGORY_GRAD_BUCKETS))
        taken += 2.0 * (double)buffer->elements;
    }
  ck_assert_double_ge (taken, 8 * (latent + experts));
  ck_assert_double_le (taken, 8 * 1.02 * (latent + experts));
  test_case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower-pools");
  TCase *tcase = tcase_create ("pools");
  tcase_set_timeout (tcase, 60);
  tcase_add_loop_test (tcase, pools_serve_the_most_units_that_are_alike, 0, G_N_ELEMENTS (rows));
  tcase_add_loop_test (tcase, units_beside_a_pool_are_reduced_in_a_queue, 0, 2);
  tcase_add_test (tcase, pools_take_two_sets);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
