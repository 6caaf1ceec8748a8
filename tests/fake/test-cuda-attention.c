/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by batched products on the fake device: compared with the CPU's, at sizes that are
 * multiples of nothing; which cases it leaves to the plain kernel; how it is asked for. */
#include "config.h"

#include "exec/cuda/attention-batched.h"
#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/schedule/scratch.h"
#include "tests/fake/batched-compare.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/watch.h"
#include "tests/share.h"

#include <stdlib.h>
#include <string.h>

START_TEST (odd_sizes_are_as_on_the_cpu)
{
  const BatchedCase one = batched_case_random ((guint32)_i);
  fake_cuda_reset ();
  fake_cuda_find_races (TRUE);
  fake_cuda_run_backwards (_i % 2 == 1);
  batched_compare (&one, 0, NULL);
  ck_assert_str_eq (fake_cuda_finish (), "");
  ck_assert (count_logged ("softmax grid") > 0);
  ck_assert_uint_eq (count_logged ("attention<") + count_logged ("attention_dq<"), 0);
}
END_TEST

static const BatchedCase sizes[] = {
  { 1, 17, 2, 1, 64, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 0, 0, 0 },
  { 1, 17, 4, 2, 80, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32, 5, 0, 0, 0 },
  { 1, 1000, 2, 1, 64, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 0, 0, 0 },
  { 1, 1000, 1, 1, 80, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32, 300, 0, 0, 0 },
  { 2, 130, 2, 2, 128, PLAN_DTYPE_BF16, PLAN_DTYPE_FP32, 100, 0, 0, 0 },
  { 1, 140, 2, 1, 256, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 64, 0, 0, 0 },
  { 1, 1000, 2, 1, 64, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 100, 0, 0 },
  { 2, 700, 4, 2, 40, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32, 90, 33, 0, 0 },
  { 1, 300, 3, 3, 48, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 70, 0, 32, 0 },
  { 2, 600, 2, 2, 24, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32, 0, 0, 40, 0 },
  { 1, 260, 3, 3, 48, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32, 90, 0, 0,
    BATCHED_SLOPES | BATCHED_DROPOUT },
  { 2, 300, 4, 2, 64, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 70, 120, 0,
    BATCHED_BOUNDED | BATCHED_DOCUMENTS },
};

START_TEST (sizes_of_models_are_as_on_the_cpu)
{
  fake_cuda_reset ();
  fake_cuda_find_races (TRUE);
  batched_compare (&sizes[_i], 0, NULL);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

START_TEST (passes_are_timed)
{
  g_autofree char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream (&text, &bytes);
  fake_cuda_reset ();
  fake_cuda_find_races (TRUE);
  batched_compare (&sizes[0], 2, file);
  fclose (file);
  ck_assert_msg (g_str_has_prefix (text, "# attention by batches, bf16: 1 x 17 2/1 heads of 64: ")
                     && strstr (text, "\n# attention_bwd by batches")
                     && strstr (text, " TFLOP/s\n"),
                 "%s", text);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* cuBLASLt has no product of fp32 factors that is rounded to bf16. */
START_TEST (what_no_product_makes_a_kernel_does)
{
  const BatchedCase one = { 1, 9, 2, 1, 16, PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, 0, 0, 0, 0 };
  fake_cuda_reset ();
  fake_cuda_find_races (TRUE);
  batched_compare (&one, 0, NULL);
  ck_assert_uint_eq (count_logged ("attention<"), 2);
  ck_assert_uint_eq (count_logged ("attention_dq<"), 2);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* --- turns -------------------------------------------------------------------------------- */

/* Scratch of the size that plans give is used whole, and no more. With less, queries are taken in
 * more and smaller turns, down to one query at a time. */
START_TEST (turns_fit_what_there_is)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const PlanOpKind kind = _i % 2 ? PLAN_OP_ATTENTION_BWD : PLAN_OP_ATTENTION;
  const gint64 dims[] = { 1, g_rand_int_range (rand, 1, 40000), 8,
                          1 << g_rand_int_range (rand, 0, 4), g_rand_int_range (rand, 1, 300) };
  const guint64 images = kind == PLAN_OP_ATTENTION_BWD ? 2 : 0, scores = images ? 2 : 1;
  const guint64 whole = plan_scratch_batched_elements (kind, dims);
  gboolean fits = TRUE;
  guint64 elements;
  for (elements = whole; fits; elements /= 2)
    {
      PlanBatchedTurn turn;
      fits = plan_scratch_batched_turn (kind, dims, elements, &turn);
      if (!fits)
        break;
      const guint64 each
          = scores * (guint64)turn.queries * turn.query_stride + images * turn.key_stride;
      ck_assert_uint_le ((guint64)turn.heads * each, elements);
      ck_assert (turn.query_stride >= (guint64)dims[1] && turn.query_stride % 4 == 0);
      ck_assert (turn.key_stride >= (guint64)(dims[1] * dims[4]));
      ck_assert (turn.heads <= dims[3] && turn.queries <= dims[1]);
      ck_assert (turn.heads == 1 || turn.queries == MIN (dims[1], 512));
      if (elements == whole)
        ck_assert_int_ge (turn.queries, MIN (dims[1], 16));
    }
  ck_assert_uint_lt (elements, scores * (((guint64)dims[1] + 3) / 4 * 4)
                                   + images * (((guint64)(dims[1] * dims[4]) + 3) / 4 * 4));
}
END_TEST

/* --- runs --------------------------------------------------------------------------------- */

/* Whole runs by batched products, by the plain kernel, and, where no way is named, by cuDNN, which
 * supports windows, too. */
static const struct
{
  const char *way, *fields;
  guint ranks, head_dim;
  gint window; /* negative: chunks of so many keys */
} runs[] = {
  { "batched", "compute=bf16 deterministic=on", 1, 8, 0 },
  { "batched", "compute=bf16", 2, 16, 0 },
  { "batched", "compute=bf16 recompute=full strategy=optim_grads_params", 3, 12, 0 },
  { "batched", "compute=fp32", 4, 8, 0 },
  { "plain", "compute=bf16", 2, 16, 0 },
  { "plain", "compute=fp32", 1, 12, 0 },
  { "auto", "compute=bf16 strategy=optim_grads_params", 2, 16, 3 },
  { "auto", "compute=bf16 recompute=full deterministic=on", 1, 16, 1 },
  { "batched", "compute=fp32", 2, 8, 5 },
  { "plain", "compute=bf16", 1, 16, 3 },
  { "batched", "compute=fp32", 2, 8, -5 },
  { "plain", "compute=bf16", 1, 16, -7 },
  { "batched", "compute=fp32 attention_dropout=0.25 doc_tokens=5", 2, 8, 0 },
  { "batched", "compute=bf16 attention_dropout=0.1 recompute=full hidden_dropout=0.1", 1, 16, 6 },
  { "plain", "compute=fp32 attention_dropout=0.25 doc_tokens=5 mbs=2 gbs=4", 2, 8, -7 },
};

static void
init_windowed (Case *c, guint ranks, guint head_dim, gint window, const char *fields)
{
  g_autofree char *model
      = g_strdup_printf ("family=llama,layers=2,hidden=16,ffn=24,heads=2,kv_heads=1,head_dim=%u,"
                         "window=%d,vocab=32,max_seq=16%s",
                         head_dim, ABS (window), window < 0 ? ",window_chunks=on" : "");
  case_open (c, model, ranks);
  case_set_plan (c, fields);
}

START_TEST (runs_are_as_on_the_cpu)
{
  const gboolean is_plain = strcmp (runs[_i].way, "plain") == 0;
  const gboolean is_batched = strcmp (runs[_i].way, "batched") == 0;
  Case c;
  g_setenv ("FSDPLAN_ATTENTION", runs[_i].way, TRUE);
  init_windowed (&c, runs[_i].ranks, runs[_i].head_dim, runs[_i].window, runs[_i].fields);
  check_against_cpu (&c, runs[_i].fields);
  ck_assert ((count_logged ("cuDNN") == 0) == (is_plain || is_batched));
  ck_assert ((count_logged ("softmax grid") > 0) == is_batched);
  ck_assert ((count_logged ("softmax_bwd grid") > 0) == is_batched);
  ck_assert ((count_logged ("attention<") > 0) == is_plain);
  case_clear (&c, runs[_i].fields);
}
END_TEST

/* Features of other families: norms that add 1 or stand behind branches, scaled embeddings, bounded
 * logits, windows in some layers, other score scales, chunks, norms without weights, layers without
 * positions, partial rotary embedding, parallel branches, a norm behind the embedding, bounded
 * scores, and slopes (ALiBi) of a number of heads that is a power of two, or none. */
static const char *const families[] = {
  "family=gemma2,heads=2,kv_heads=2,window=3,attn_scalar=5,attn_softcap=0,logit_softcap=1.5",
  "family=gemma3_text,heads=2,kv_heads=2,window=5,full_every=2,attn_scalar=7",
  "family=llama,heads=2,kv_heads=2,window=4,window_chunks=on,full_every=2,nope_every=2,qk_l2_norm="
  "rope",
  "family=gpt_neox,heads=2,rope_fraction=0.5,norm_1p=on",
  "family=falcon,heads=2,kv_heads=2,embed_norm=on",
  "family=gemma2,heads=2,kv_heads=2,window=3,attn_scalar=5,attn_softcap=2,logit_softcap=1.5",
  "family=bloom,heads=3",
  "family=mpt,heads=2,kv_heads=2",
};

/* The first ones, whose attention cuDNN takes over in 16 bits; and those that it takes over in no
 * format. */
#define WINDOWED_FAMILIES 3
#define FIRST_BENT_FAMILY 5

START_TEST (families_run_as_on_the_cpu)
{
  g_autofree char *model = g_strdup_printf (
      "%s,layers=2,hidden=24,ffn=24,head_dim=8,vocab=32,max_seq=16", families[_i]);
  Case c;
  g_unsetenv ("FSDPLAN_ATTENTION");
  case_open (&c, model, 2);
  case_set_plan (&c, "compute=fp32");
  check_against_cpu (&c, families[_i]);
  ck_assert_uint_eq (count_logged ("cuDNN"), 0);
  case_clear (&c, families[_i]);
  if (_i >= WINDOWED_FAMILIES && _i < FIRST_BENT_FAMILY)
    return;
  case_open (&c, model, 2);
  case_set_plan (&c, "compute=bf16");
  check_against_cpu (&c, families[_i]);
  ck_assert ((count_logged ("cuDNN") > 0) == (_i < WINDOWED_FAMILIES));
  ck_assert ((count_logged ("softmax grid") > 0) == (_i >= FIRST_BENT_FAMILY));
  ck_assert_uint_eq (count_logged ("attention<"), 0);
  case_clear (&c, families[_i]);
}
END_TEST

START_TEST (a_graph_has_them_too)
{
  Case each, kept;
  g_setenv ("FSDPLAN_ATTENTION", "batched", TRUE);
  case_init_heads (&each, 1, 24, "compute=bf16 deterministic=on");
  case_must_run (&each, "ops one by one");
  case_init_heads (&kept, 1, 24, "compute=bf16 deterministic=on cuda_graph=on");
  case_must_run (&kept, "a graph");
  ck_assert_uint_gt (count_logged ("softmax grid"), 0);
  assert_equal_losses (&each, &kept, "a graph");
  case_clear (&kept, "a graph");
  case_free (&each);
}
END_TEST

START_TEST (runs_take_what_was_predicted)
{
  static const struct
  {
    const char *fields;
    guint head_dim;
    gint window;
  } cases[] = { { "compute=fp32", 12, 0 }, { "compute=bf16", 12, 0 }, { "compute=bf16", 16, 5 } };
  const char *fields = cases[_i].fields;
  Case c;
  g_unsetenv ("FSDPLAN_ATTENTION");
  init_windowed (&c, 2, cases[_i].head_dim, cases[_i].window, fields);
  case_must_run (&c, fields);
  case_check_bytes (&c, fields);
  ck_assert ((count_logged ("softmax_bwd grid") > 0) == (cases[_i].window == 0));
  ck_assert ((count_logged ("cuDNN") > 0) == (cases[_i].window > 0));
  case_clear (&c, fields);
}
END_TEST

START_TEST (other_ways_are_refused)
{
  Case c;
  g_setenv ("FSDPLAN_ATTENTION", "fused", TRUE);
  case_init (&c, 1, "compute=bf16");
  assert_refused (&c, PLAN_ERROR_INVALID,
                  "FSDPLAN_ATTENTION: 'fused' is not one of auto, batched, plain");
}
END_TEST

int
main (void)
{
  g_autofree char *store = g_dir_make_tmp ("test-cuda-attention-XXXXXX", NULL);
  g_setenv ("XDG_DATA_HOME", store, TRUE);
  g_unsetenv ("FSDPLAN_ATTENTION");
  Suite *suite = suite_create ("cuda-attention");
  TCase *tcase = tcase_create ("attention");
  tcase_set_timeout (tcase, 120);
  test_add_share (tcase, odd_sizes_are_as_on_the_cpu, 60);
  test_add_runs (tcase, sizes_of_models_are_as_on_the_cpu, G_N_ELEMENTS (sizes));
  tcase_add_test (tcase, passes_are_timed);
  tcase_add_test (tcase, what_no_product_makes_a_kernel_does);
  tcase_add_loop_test (tcase, turns_fit_what_there_is, 0, 100);
  test_add_run_share (tcase, runs_are_as_on_the_cpu, G_N_ELEMENTS (runs));
  tcase_add_test (tcase, a_graph_has_them_too);
  test_add_runs (tcase, families_run_as_on_the_cpu, G_N_ELEMENTS (families));
  test_add_runs (tcase, runs_take_what_was_predicted, 3);
  tcase_add_test (tcase, other_ways_are_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
