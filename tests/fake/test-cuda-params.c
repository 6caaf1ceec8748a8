/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs in formats with scales on the fake device: parameters that are quantised before they
 * are gathered, scales of blocks in cuBLASLt's tiles, and planted stale copies of weights. */
#include "config.h"

#include "exec/cuda/device-cuda.h"
#include "planner/base/error.h"
#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/share.h"

#include <stdlib.h>
#include <string.h>

/* Models whose sizes are whole blocks in every direction; the second's are also whole tiles of
 * scales. */
#define BLOCKS "layers=2,hidden=64,ffn=96,heads=2,kv_heads=1,head_dim=32,vocab=40,max_seq=64"
#define TILES "layers=1,hidden=128,ffn=256,heads=2,kv_heads=1,head_dim=64,vocab=40,max_seq=128"

static void
case_init_on (Case *c, guint ranks, int major, const char *sizes, const char *fields)
{
  g_autofree char *model = g_strconcat ("family=llama,", sizes, NULL);
  case_open_on (c, model, major >= 10 ? "b200" : "h100-80gb", ranks);
  fake_cuda_set_machine (1, (guint64)2 << 30, major, 0);
  case_set_plan (c, fields);
}

static const struct
{
  const char *fields;
  int major;
  const char *sizes;
} plans[] = {
  { "compute=fp8-tensorwise param_gather=fp8 seq=16", 9, BLOCKS },
  { "compute=fp8-tensorwise param_gather=fp8 keep_transpose=on seq=16", 9, BLOCKS },
  { "compute=fp8-delayed seq=16", 9, BLOCKS },
  { "compute=fp8-delayed param_gather=fp8 seq=16", 9, BLOCKS },
  { "compute=mxfp8 seq=32", 10, BLOCKS },
  { "compute=mxfp8 param_gather=mxfp8 seq=32", 10, BLOCKS },
  { "compute=nvfp4 seq=32", 10, BLOCKS },
  { "compute=nvfp4 param_gather=nvfp4 seq=32", 10, BLOCKS },
  { "compute=mxfp8 seq=128", 10, TILES },
  { "compute=mxfp8 param_gather=mxfp8 seq=128", 10, TILES },
  { "compute=nvfp4 seq=128", 10, TILES },
  { "compute=nvfp4 param_gather=nvfp4 seq=128", 10, TILES },
  { "compute=fp8-blockwise seq=128", 9, TILES },
  { "compute=fp8-blockwise param_gather=fp8 seq=128", 9, TILES },
  { "compute=fp8-blockwise param_gather=fp8 keep_transpose=on seq=128", 9, TILES },
};

#define STRATEGIES 3
static const char *const strategies[STRATEGIES] = { "optim", "optim_grads", "optim_grads_params" };

/* With 1 to 4 ranks; a plan that rules forbid under all three strategies is left out. */
START_TEST (quantised_parameters_are_near_the_cpus)
{
  const guint at = (guint)_i / STRATEGIES, strategy = (guint)_i % STRATEGIES;
  g_autofree char *fields
      = g_strdup_printf ("%s strategy=%s deterministic=on", plans[at].fields, strategies[strategy]);
  Case c;
  case_init_on (&c, 1 + (at + strategy) % MAX_RANKS, plans[at].major, plans[at].sizes, fields);
  check_against_cpu (&c, fields);
  case_clear (&c, fields);
}
END_TEST

/* Products of the forward pass may sum in fast, shorter sums, those of gradients may not. */
START_TEST (forward_products_sum_fast)
{
  Case c;
  guint n_fast = 0, n_slow = 0;
  case_init_on (&c, 1, 9, BLOCKS, plans[_i].fields);
  case_must_run (&c, plans[_i].fields);
  g_auto (GStrv) lines = g_strsplit_set (fake_cuda_log (), "\n", -1);
  for (char **line = lines; *line; line++)
    {
      const gboolean is_fast = strstr (*line, " fast") != NULL;
      if (!g_str_has_prefix (*line, "gemm m"))
        continue;
      ck_assert_msg (is_fast == (strstr (*line, "e4m3") && !strstr (*line, "e5m2")), "%s", *line);
      n_fast += is_fast;
      n_slow += strstr (*line, "e5m2") != NULL;
    }
  ck_assert_uint_gt (n_fast, 0);
  ck_assert_uint_gt (n_slow, n_fast);
  case_clear (&c, plans[_i].fields);
}
END_TEST

/* Where tiles are whole all products are cuBLASLt's, but those of nvfp4 that transpose what was
 * gathered; elsewhere the plain kernel takes the products of factors in blocks. Blocks of 128 are
 * always whole. */
START_TEST (whole_tiles_are_cublaslts)
{
  static const struct
  {
    const char *sizes, *fields;
    gboolean has_plain;
    int major;
  } cases[] = {
    { TILES, "compute=mxfp8 seq=128", FALSE, 10 },
    { TILES, "compute=mxfp8 param_gather=mxfp8 strategy=optim_grads_params seq=128", FALSE, 10 },
    { TILES, "compute=nvfp4 seq=128", FALSE, 10 },
    { TILES, "compute=nvfp4 param_gather=nvfp4 strategy=optim_grads_params seq=128", TRUE, 10 },
    { BLOCKS, "compute=mxfp8 seq=32", TRUE, 10 },
    { TILES, "compute=fp8-blockwise seq=128", FALSE, 9 },
    { TILES, "compute=fp8-blockwise param_gather=fp8 strategy=optim_grads_params seq=128", FALSE,
      9 },
  };
  Case c;
  case_init_on (&c, 1, cases[_i].major, cases[_i].sizes, cases[_i].fields);
  case_must_run (&c, cases[_i].fields);
  ck_assert_msg ((count_logged ("gemm_plain") > 0) == cases[_i].has_plain, "%s: %u plain products",
                 cases[_i].fields, count_logged ("gemm_plain"));
  ck_assert_uint_gt (count_logged ("gemm m"), 0);
  case_clear (&c, cases[_i].fields);
}
END_TEST

START_TEST (bytes_taken_equal_bytes_predicted)
{
  g_autofree char *fields = g_strconcat (plans[_i].fields, " strategy=optim_grads_params", NULL);
  Case c;
  case_init_on (&c, 2 + (guint)_i % 2, plans[_i].major, plans[_i].sizes, fields);
  case_must_run (&c, fields);
  case_check_bytes (&c, fields);
  case_clear (&c, fields);
}
END_TEST

/* Strategies move shards between ranks: each gives every parameter the same scales. */
START_TEST (strategies_agree_bit_for_bit)
{
  static const char *const formats[]
      = { "compute=fp8-tensorwise param_gather=fp8 seq=16",
          "compute=mxfp8 param_gather=mxfp8 seq=32", "compute=nvfp4 param_gather=nvfp4 seq=32",
          "compute=fp8-delayed param_gather=fp8 seq=16",
          "compute=fp8-blockwise param_gather=fp8 seq=128" };
  Case first;
  for (guint i = 0; i < STRATEGIES; i++)
    {
      g_autofree char *fields
          = g_strdup_printf ("%s strategy=%s main_grads=fp32 grad_comm=fp32 deterministic=on",
                             formats[_i], strategies[i]);
      Case c;
      case_init_on (&c, 3, strstr (formats[_i], "fp8-") ? 9 : 10,
                    strstr (formats[_i], "seq=128") ? TILES : BLOCKS, fields);
      case_must_run (&c, fields);
      if (i == 0)
        {
          first = c;
          continue;
        }
      assert_equal_losses (&c, &first, fields);
      case_clear (&c, fields);
    }
  case_free (&first);
}
END_TEST

/* What is computed again is computed from the same numbers: for every recipe that quantises, with
 * and without quantised gathers. */
START_TEST (recomputing_changes_no_bit)
{
  static const char *const recomputes[]
      = { "recompute=selective recompute_modules=core_attn",
          "recompute=selective recompute_modules=core_attn+mlp", "recompute=full" };
  g_autofree char *once = g_strdup_printf ("%s recompute=none deterministic=on", plans[_i].fields);
  Case first;
  case_init_on (&first, 2, plans[_i].major, plans[_i].sizes, once);
  case_must_run (&first, once);
  const GByteArray *weights = first.results[0].main_params;
  for (guint i = 0; i < G_N_ELEMENTS (recomputes); i++)
    {
      g_autofree char *again = g_strdup_printf ("%s %s fine_grained=on deterministic=on",
                                                plans[_i].fields, recomputes[i]);
      Case c;
      case_init_on (&c, 2, plans[_i].major, plans[_i].sizes, again);
      case_must_run (&c, again);
      assert_equal_losses (&c, &first, again);
      ck_assert_uint_eq (c.results[0].main_params->len, weights->len);
      ck_assert_mem_eq (c.results[0].main_params->data, weights->data, weights->len);
      case_clear (&c, again);
    }
  case_free (&first);
}
END_TEST

/* --- planted mistakes --------------------------------------------------------------------- */

/* The schedule without those ops of its step that begin with `what`, from a given number of them
 * on. */
static PlanSchedule *
schedule_without (const Case *c, guint rank, const char *what, guint kept)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) whole = test_lower (c->of, rank);
  g_autofree char *text = plan_schedule_print (whole);
  g_auto (GStrv) lines = g_strsplit_set (text, "\n", -1);
  g_autoptr (GString) less = g_string_new (NULL);
  gboolean in_step = FALSE;
  guint found = 0;
  for (char **line = lines; *line; line++)
    {
      in_step |= g_str_has_prefix (*line, "section step");
      if (in_step && strstr (*line, what) && found++ >= kept)
        continue;
      g_string_append_printf (less, "%s\n", *line);
    }
  ck_assert_msg (found > kept, "no '%s' in the step", what);
  PlanSchedule *made = plan_schedule_parse (less->str, "text", &error);
  ck_assert_msg (made != NULL, "%s", error ? error->message : "");
  return made;
}

typedef struct
{
  const Case *c;
  const char *what;
  ExecComm *comm;
  ExecResult result;
  GError *error;
} Rank;

static gpointer
run_rank (gpointer data)
{
  Rank *self = data;
  g_autoptr (PlanSchedule) schedule = schedule_without (self->c, self->comm->rank, self->what, 0);
  if (!exec_run_schedule (&self->c->job, schedule, self->comm, FALSE, NULL, NULL, &self->result,
                          &self->error))
    self->comm->ops->abort (self->comm, self->error->message);
  self->comm->ops->close (self->comm);
  return NULL;
}

/* What a rank reports when ops are left out on all ranks. */
static char *
message_without (const Case *c, const char *what)
{
  Rank rank[MAX_RANKS] = { 0 };
  GThread *threads[MAX_RANKS];
  ExecComm *comms[MAX_RANKS];
  char *message = NULL;
  ck_assert (exec_comm_cuda_open (c->ranks, comms, NULL));
  for (guint r = 0; r < c->ranks; r++)
    {
      rank[r] = (Rank){ .c = c, .what = what, .comm = comms[r] };
      threads[r] = g_thread_new ("rank", run_rank, &rank[r]);
    }
  for (guint r = 0; r < c->ranks; r++)
    {
      g_thread_join (threads[r]);
      if (rank[r].error && !message && !strstr (rank[r].error->message, "failed"))
        message = g_strdup (rank[r].error->message);
      g_clear_error (&rank[r].error);
      exec_result_clear (&rank[r].result);
    }
  return message;
}

static const struct
{
  const char *fields;
  int major;
  const char *what, *message;
} planted[] = {
  { "compute=fp8-tensorwise param_gather=fp8 strategy=optim_grads_params", 9,
    "param_quantize compute", "holds weights of step 1" },
  { "compute=fp8-tensorwise param_gather=fp8 strategy=optim_grads_params", 9,
    "transpose compute out=transposed.gate_up", "is read before anything wrote it" },
  { "compute=fp8-blockwise param_gather=fp8 strategy=optim_grads_params seq=128", 9,
    "param_quantize compute", "holds weights of step 1" },
  { "compute=fp8-blockwise param_gather=fp8 strategy=optim_grads_params seq=128", 9,
    "transpose compute out=transposed.gate_up", "is read before anything wrote it" },
  { "compute=mxfp8 param_gather=mxfp8 strategy=optim_grads seq=32", 10,
    "all_gather gather group=inner out=columns.layer", "columns.layer holds weights of step 2 in" },
  { "compute=mxfp8 param_gather=mxfp8 strategy=optim_grads_params seq=32", 10,
    "all_gather gather group=inner out=columns.layer",
    "columns.layer is read before anything wrote it" },
};

START_TEST (stale_copies_are_caught)
{
  Case c;
  case_init_on (&c, 2, planted[_i].major, strstr (planted[_i].fields, "seq=128") ? TILES : BLOCKS,
                planted[_i].fields);
  g_autofree char *message = message_without (&c, planted[_i].what);
  ck_assert_msg (message && strstr (message, planted[_i].message), "without '%s': '%s'",
                 planted[_i].what, message ? message : "");
  case_free (&c);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------- */

START_TEST (blocks_are_refused_before_blackwell)
{
  Case c;
  case_init_on (&c, 1, 10, BLOCKS, "compute=mxfp8 seq=32");
  fake_cuda_set_machine (1, (guint64)2 << 30, 9, 0);
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED,
                  " in mxfp8, which cuBLASLt multiplies on GPUs of compute capability 10.0 and "
                  "later: this one has 9.0, compute must be fp32, bf16, "
                  "fp8-delayed or fp8-tensorwise");
  case_init_on (&c, 2, 10, BLOCKS, "compute=nvfp4 param_gather=nvfp4 seq=32");
  fake_cuda_set_machine (1, (guint64)2 << 30, 8, 9);
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED, "this one has 8.9");
}
END_TEST

/* Only Hopper has these products: earlier GPUs have none, and later ones do not emulate them. */
START_TEST (blocks_of_128_are_refused_but_on_hopper)
{
  static const struct
  {
    int major, minor;
    const char *message;
  } others[] = {
    { 8, 0, "capability 9.0 alone: this one has 8.0, compute must be fp32, bf16" },
    { 8, 9, "this one has 8.9, compute must be fp32, bf16, fp8-delayed or fp8-tensorwise" },
    { 10, 0,
      "this one has 10.0, compute must be fp32, bf16, fp8-delayed, fp8-tensorwise, mxfp8 "
      "or nvfp4" },
    { 12, 0, "in fp8-128x128, which cuBLASLt multiplies on GPUs of compute capability 9.0 alone" },
  };
  Case c;
  case_init_on (&c, 1, 9, TILES, "compute=fp8-blockwise seq=128");
  fake_cuda_set_machine (1, (guint64)2 << 30, others[_i].major, others[_i].minor);
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED, others[_i].message);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-params");
  TCase *tcase = tcase_create ("params");
  tcase_set_timeout (tcase, 600);
  test_add_run_share (tcase, quantised_parameters_are_near_the_cpus,
                      STRATEGIES * G_N_ELEMENTS (plans));
  test_add_run_share (tcase, forward_products_sum_fast, 4);
  test_add_run_share (tcase, whole_tiles_are_cublaslts, 7);
  test_add_run_share (tcase, bytes_taken_equal_bytes_predicted, G_N_ELEMENTS (plans));
  test_add_run_share (tcase, strategies_agree_bit_for_bit, 5);
  test_add_run_share (tcase, recomputing_changes_no_bit, G_N_ELEMENTS (plans));
  test_add_runs (tcase, stale_copies_are_caught, G_N_ELEMENTS (planted));
  tcase_add_test (tcase, blocks_are_refused_before_blackwell);
  tcase_add_loop_test (tcase, blocks_of_128_are_refused_but_on_hopper, 0, 4);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
