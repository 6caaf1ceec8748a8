/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs over NCCL: ranks are threads with a fake GPU each. They are compared with the CPU's,
 * op by op and as graphs; with ranks that do not agree, and with a rank that is lost within a
 * launch. */
#include "config.h"

#include "exec/nccl/comm-nccl-private.h"
#include "exec/nccl/comm-nccl.h"
#include "planner/lower/lower.h"
#include "planner/schedule/joined.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake.h"
#include "tests/fake/order.h"
#include "tests/share.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define MODEL \
  "family=llama,layers=2,hidden=16,ffn=24,heads=2,kv_heads=2,head_dim=8,vocab=32,max_seq=16"
#define NCCL_STEPS 4 /* op by op, captured, launched, op by op */
#define LONG_S 120
#define SHORT_S 3 /* the deadline; a rank may wait for a CPU that long */

static guint processors; /* multiprocessors that collectives may take; 0: no limit */

static ExecComm *
join (ExecComm *threads, GError **error)
{
  const ExecNcclOptions options = { .local_rank = threads->rank,
                                    .timeout_s = threads->timeout_s,
                                    .sms = processors,
                                    .spares_sms = processors > 0,
                                    .is_registered = TRUE };
  return exec_comm_nccl_open (threads, &options, error);
}

static void
case_init_nccl (Case *c, guint ranks, const char *fields, gboolean is_graph)
{
  g_autofree char *all
      = g_strdup_printf ("%s deterministic=on cuda_graph=%s", fields, is_graph ? "on" : "off");
  fake_nccl_reset ();
  case_open (c, MODEL, ranks);
  case_set_plan (c, all);
  fake_cuda_set_machine (ranks, (guint64)1 << 30, 9, 0);
  c->job.join = join;
  c->job.steps = NCCL_STEPS;
  c->job.rate.warmup_steps = 3;
  c->job.timeout_s = LONG_S;
  processors = 0;
}

static const struct
{
  guint ranks;
  const char *fields;
} plans[] = {
  { 2, "compute=fp32 strategy=no_shard" },
  { 3, "compute=bf16 strategy=optim_grads_params mbs=1 gbs=6" },
  { 2, "compute=bf16 strategy=optim_grads nccl_ub=on ag_group=on" },
  { 4, "compute=bf16 strategy=optim_grads_params dp_outer=2 reduce_algo=a2a" },
  { 2, "compute=fp8-tensorwise strategy=optim_grads_params" },
  { 3, "compute=fp8-delayed strategy=optim_grads_params param_gather=fp8 mbs=1 gbs=6" },
  { 2, "compute=fp32 strategy=no_shard tp=2 sp=off" },
  { 4, "compute=fp32 strategy=optim_grads_params tp=2 sp=on ce_fusion=off" },
  { 4, "compute=bf16 strategy=optim tp=2 sp=on nccl_ub=on ag_group=on" },
  { 4, "compute=bf16 strategy=optim_grads_params tp=2 sp=on tp_overlap=async recompute=full" },
};

#define HOSTED \
  "compute=bf16 strategy=optim_grads_params mbs=1 gbs=6 deterministic=on precision_aware=on " \
  "offload_optimizer="

/* The numbers are near the CPU's, and graphs leave the same bits. */
START_TEST (a_graph_changes_no_bit)
{
  const guint ranks = plans[_i].ranks;
  const char *fields = plans[_i].fields;
  ExecResult expected[MAX_RANKS] = { { 0 } };
  Case plain, graph;
  case_init_nccl (&plain, ranks, fields, FALSE);
  case_must_run (&plain, fields);
  plain.job.join = NULL;
  run_on_cpu (&plain, fields, expected);
  case_init_nccl (&graph, ranks, fields, TRUE);
  case_must_run (&graph, fields);
  ck_assert_uint_eq (count_logged ("graph"), 2 * ranks * (NCCL_STEPS - 2));
  for (guint r = 0; r < ranks; r++)
    {
      const ExecResult *x = &graph.results[r], *y = &plain.results[r];
      assert_near (&plain, fields, y, &expected[r]);
      ck_assert_mem_eq (x->losses, y->losses, NCCL_STEPS * sizeof (double));
      ck_assert_mem_eq (x->grad_norms, y->grad_norms, NCCL_STEPS * sizeof (double));
      ck_assert_mem_eq (x->main_params->data, y->main_params->data, y->main_params->len);
      exec_result_clear (&expected[r]);
    }
  case_free (&plain);
  case_clear (&graph, fields);
}
END_TEST

/* Nor does a share of the optimizer on the host, whose processors ranks share. */
START_TEST (the_host_changes_no_bit)
{
  static const char *const fields[] = { HOSTED "0", HOSTED "0.5" };
  Case of[2];
  for (guint i = 0; i < 2; i++)
    {
      case_init_nccl (&of[i], 3, fields[i], FALSE);
      case_must_run (&of[i], fields[i]);
      if (i == 0)
        ck_assert_str_eq (fake_cuda_finish (), "");
    }
  for (guint r = 0; r < 3; r++)
    {
      const ExecResult *x = &of[0].results[r], *y = &of[1].results[r];
      ck_assert_mem_eq (x->losses, y->losses, NCCL_STEPS * sizeof (double));
      ck_assert_mem_eq (x->grad_norms, y->grad_norms, NCCL_STEPS * sizeof (double));
      ck_assert_mem_eq (x->main_params->data, y->main_params->data, y->main_params->len);
    }
  case_free (&of[0]);
  case_clear (&of[1], fields[1]);
}
END_TEST

/* --- between two steps -------------------------------------------------------------------- */

static ExecKernels planted_kernels;
static gint continued; /* atomic: how often a stream continued */

static gboolean
is_early (const ExecArgs *args)
{
  return args->constants->step < NCCL_STEPS - 1; /* before the last step there is a wait */
}

/* Updates weights, and lets their stream stand still until the next step begins. */
static int
update_and_stand (const ExecArgs *args, void *stream)
{
  const int code = exec_kernels_cuda.launch[PLAN_OP_ADAMW](args, stream);
  if (is_early (args))
    fake_order_stall (stream, TRUE);
  return code;
}

static int
load_and_continue (const ExecArgs *args, void *stream)
{
  const int code = exec_kernels_cuda.launch[PLAN_OP_EMBED](args, stream);
  if (args->constants->step > 1 && is_early (args))
    g_atomic_int_inc (&continued);
  fake_order_stall (stream, FALSE);
  return code;
}

static gint asked, was_told; /* atomic */

/* Tells one rank alone. */
static gboolean
is_stopping (void)
{
  return g_atomic_int_get (&asked) && !g_atomic_int_add (&was_told, 1);
}

/* The host issues a step while the one before still updates weights, whatever is gathered behind
 * that: a stream that stands still from the update on holds nothing up before the first layer. */
START_TEST (the_host_waits_for_no_update)
{
  static const char *const fields[]
      = { "compute=bf16 strategy=optim_grads_params", "compute=bf16 strategy=optim",
          "compute=fp32 strategy=no_shard" };
  const char *plan = fields[_i];
  Case c;
  case_init_nccl (&c, 2, plan, FALSE);
  planted_kernels = exec_kernels_cuda;
  planted_kernels.launch[PLAN_OP_ADAMW] = update_and_stand;
  planted_kernels.launch[PLAN_OP_EMBED] = load_and_continue;
  c.job.kernels = &planted_kernels;
  c.job.is_stopping = is_stopping;
  asked = was_told = continued = 0;
  case_must_run (&c, plan);
  ck_assert_int_ge (continued, 2 * (NCCL_STEPS - 3));
  case_clear (&c, plan);
}
END_TEST

static int
clip_and_ask (const ExecArgs *args, void *stream)
{
  if (args->constants->step == 2)
    g_atomic_int_set (&asked, 1);
  return exec_kernels_cuda.launch[PLAN_OP_CLIP](args, stream);
}

/* All ranks end after the same step when one is asked to: it says so before the next step, and all
 * know it before the one after that. */
START_TEST (one_rank_stops_all)
{
  const char *plan = "compute=bf16 strategy=optim_grads_params";
  Case c;
  g_autoptr (GError) error = NULL;
  case_init_nccl (&c, 2, plan, FALSE);
  planted_kernels = exec_kernels_cuda;
  planted_kernels.launch[PLAN_OP_CLIP] = clip_and_ask;
  c.job.kernels = &planted_kernels;
  c.job.is_stopping = is_stopping;
  asked = was_told = 0;
  ck_assert (!case_run (&c, &error));
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_STOPPED)
                     && strstr (error->message, "asked to end: 3 steps are done") != NULL,
                 "%s", error->message);
  case_clear (&c, plan);
}
END_TEST

/* --- processors --------------------------------------------------------------------------- */

static guint
count_limited (void)
{
  guint n = 0;
  for (const char *at = fake_cuda_log (); (at = strstr (at, " sms 108")); at++)
    n++;
  return n;
}

/* Products that may run beside collectives leave as many of Hopper's 132 multiprocessors free as
 * NCCL is limited to. Where copy engines gather, products beside gathers alone leave none free. */
START_TEST (products_leave_processors_to_nccl)
{
  static const char *const fields[] = { "compute=bf16 strategy=optim_grads_params nccl_ub=off",
                                        "compute=bf16 strategy=optim_grads_params nccl_ub=on" };
  guint limited[3];
  for (guint i = 0; i < 3; i++)
    {
      Case c;
      case_init_nccl (&c, 2, fields[i % 2], FALSE);
      processors = i < 2 ? 24 : 0;
      case_must_run (&c, fields[i % 2]);
      ck_assert_int_eq (fake_nccl_processors (), i < 2 ? 24 : G_MAXINT);
      ck_assert_int_eq (fake_nccl_by_copy_engine () > 0, i == 1);
      limited[i] = count_limited ();
      case_clear (&c, fields[i % 2]);
    }
  ck_assert_uint_gt (limited[0], limited[1]);
  ck_assert_uint_gt (limited[1], 0);
  ck_assert_uint_eq (limited[2], 0);
}
END_TEST

/* --- memory ------------------------------------------------------------------------------- */

#define BUFFER_BYTES (G_GUINT64_CONSTANT (128) << 20)
#define MARGIN_BYTES (G_GUINT64_CONSTANT (1) << 20) /* for memory that is allocated besides */

static char *told;

static void
hear (const char *domain, GLogLevelFlags level, const char *text, gpointer user_data)
{
  static GMutex mutex;
  g_mutex_lock (&mutex);
  if (!told)
    told = g_strdup (text);
  g_mutex_unlock (&mutex);
}

/* NCCL's own memory is allocated before the arena: that both do not fit is reported before the
 * first step; where they fit the run succeeds. */
START_TEST (a_communicator_takes_its_memory_first)
{
  const char *plan = "compute=bf16 strategy=optim_grads_params ag_group=on";
  guint64 arena;
  Case c;
  g_autoptr (GError) error = NULL;
  case_init_nccl (&c, 2, plan, FALSE);
  case_must_run (&c, plan);
  arena = c.results[0].arena_bytes;
  case_clear (&c, plan);
  for (guint fits = 0; fits < 2; fits++)
    {
      const guint64 three = 3 * BUFFER_BYTES; /* three communicators: of all ranks, and those that
                                                 gather and reduce */
      case_init_nccl (&c, 2, plan, FALSE);
      fake_nccl_set_buffers (BUFFER_BYTES);
      fake_cuda_set_machine (2, three + (fits ? 2 * arena : arena / 2) + MARGIN_BYTES, 9, 0);
      if (fits)
        case_must_run (&c, plan);
      else
        {
          ck_assert (!case_run (&c, &error));
          ck_assert_msg (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE), "%s",
                         error->message);
          ck_assert_msg (strstr (error->message, "left: ") && strstr (error->message, " are free"),
                         "%s", error->message);
        }
      case_free (&c);
    }
}
END_TEST

/* Memory of a GPU that is in use beyond what the plan counts is reported; otherwise nothing is. */
START_TEST (memory_beside_the_plan_is_told)
{
  Case c;
  void *other;
  const guint handler = g_log_set_handler (G_LOG_DOMAIN, G_LOG_LEVEL_MESSAGE, hear, NULL);
  case_init_nccl (&c, 1, "strategy=no_shard", FALSE);
  c.job.join = NULL;
  fake_cuda_set_machine (1, (guint64)4 << 30, 9, 0);
  g_clear_pointer (&told, g_free);
  if (_i == 1)
    ck_assert_int_eq (cudaMalloc (&other, (gsize)800 << 20), cudaSuccess);
  case_must_run (&c, "strategy=no_shard");
  if (_i == 1)
    cudaFree (other);
  g_log_remove_handler (G_LOG_DOMAIN, handler);
  if (_i == 0)
    ck_assert_ptr_null (told);
  else
    ck_assert_msg (told && g_str_has_prefix (told, "GPU 0 of rank 0 holds 800.")
                       && strstr (told, "where 768.0 MiB are counted for its context and NCCL"),
                   "%s", told ? told : "");
  case_clear (&c, "strategy=no_shard");
}
END_TEST

/* --- planted mistakes --------------------------------------------------------------------- */

static ExecCommOps planted_ops;
static const ExecCommOps *real_ops;

/* One rank sums one element less, in captured calls alone. */
static gboolean
reduce_less (ExecComm *self, void *buf, guint64 count, PlanDtype dtype, void *stream,
             GError **error)
{
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (stream && self->rank == 1)
    ck_assert_int_eq (cudaStreamIsCapturing (stream, &status), cudaSuccess);
  return real_ops->all_reduce (self, buf, count - (status != cudaStreamCaptureStatusNone), dtype,
                               stream, error);
}

/* Waits until all work is done before the capture, then makes the rank lost at one of the next
 * calls, which are those of launches. */
static gboolean
settle_and_lose (ExecComm *self, GError **error)
{
  if (!real_ops->settle (self, error))
    return FALSE;
  if (self->rank == 1)
    fake_nccl_lose (1, 2, FAKE_NCCL_STALLS);
  return TRUE;
}

static ExecComm *
join_and_plant (ExecComm *threads, GError **error)
{
  ExecComm *self = join (threads, error);
  if (self)
    self->ops = &planted_ops;
  return self;
}

static void
plant (Case *c)
{
  real_ops = &exec_comm_nccl_ops;
  planted_ops = exec_comm_nccl_ops;
  c->job.join = join_and_plant;
}

static gint n_graphs[2]; /* launched by each rank */

/* A step is two graphs. Behind the second of the first launch the stream stands still, until the
 * first of the next step has been launched. */
static gboolean
follow_and_stand (ExecComm *self, const char *what, void *stream, GError **error)
{
  const gint n = ++n_graphs[self->rank];
  const gboolean ok = real_ops->follow (self, what, stream, error);
  if (n == 2)
    fake_order_stall (stream, TRUE);
  if (n == 3)
    fake_order_stall (stream, FALSE);
  return ok;
}

/* The host launches a step while the one before, a graph as well, still updates weights. */
START_TEST (the_host_waits_for_no_update_of_a_graph)
{
  static const char *const fields[]
      = { "compute=bf16 strategy=optim_grads_params", "compute=fp32 strategy=no_shard" };
  Case c;
  case_init_nccl (&c, 2, fields[_i], TRUE);
  plant (&c);
  planted_ops.follow = follow_and_stand;
  n_graphs[0] = n_graphs[1] = 0;
  case_must_run (&c, fields[_i]);
  ck_assert_int_eq (n_graphs[0], 2 * (NCCL_STEPS - 2));
  ck_assert_int_eq (n_graphs[1], 2 * (NCCL_STEPS - 2));
  case_clear (&c, fields[_i]);
}
END_TEST

/* How many collectives of a run are issued with others. */
static guint
count_joined (const Case *c)
{
  guint n = 0;
  for (guint rank = 0; rank < c->ranks; rank++)
    {
      g_autoptr (PlanSchedule) schedule = plan_lower (c->of, rank, NULL);
      for (PlanSection s = PLAN_SECTION_SETUP; s < PLAN_N_SECTIONS; s++)
        {
          PlanCursor cursor;
          plan_cursor_start (&cursor, schedule, s);
          while (plan_cursor_next (&cursor))
            if (plan_joined_next (schedule, cursor.node) > 0)
              n += s == PLAN_SECTION_STEP ? NCCL_STEPS : 1;
        }
    }
  return n;
}

/* What stays in the format of activations is gathered and reduced together with the parameters of
 * its layer that are quantised, with the same results as by calls of its own. */
START_TEST (small_collectives_have_no_calls_of_their_own)
{
  static const char *const fields[]
      = { "compute=fp8-tensorwise strategy=optim_grads_params param_gather=fp8",
          "compute=fp8-delayed strategy=optim_grads param_gather=fp8 nccl_ub=on ag_group=on" };
  guint calls[2], joined[2];
  Case of[2];
  for (guint i = 0; i < 2; i++)
    {
      case_init_nccl (&of[i], 2, fields[_i], FALSE);
      plant (&of[i]);
      if (i == 0)
        planted_ops.together = NULL;
      case_must_run (&of[i], fields[_i]);
      calls[i] = count_logged ("ncclAllGather") + count_logged ("ncclReduceScatter");
      joined[i] = count_joined (&of[i]);
    }
  ck_assert_uint_gt (joined[0], 0);
  ck_assert_uint_eq (calls[0] - calls[1], joined[1]);
  for (guint r = 0; r < 2; r++)
    {
      const ExecResult *x = &of[0].results[r], *y = &of[1].results[r];
      ck_assert_mem_eq (x->losses, y->losses, NCCL_STEPS * sizeof (double));
      ck_assert_mem_eq (x->main_params->data, y->main_params->data, y->main_params->len);
    }
  case_free (&of[0]);
  case_clear (&of[1], fields[_i]);
}
END_TEST

START_TEST (launches_that_differ_are_found)
{
  Case c;
  g_autoptr (GError) error = NULL;
  case_init_nccl (&c, 2, "strategy=no_shard", TRUE);
  plant (&c);
  planted_ops.all_reduce = reduce_less;
  ck_assert (!case_run (&c, &error));
  ck_assert_msg (strstr (error->message, "rank 0 calls ncclAllReduce of ") != NULL
                     && strstr (error->message, "rank 1 calls ncclAllReduce of ") != NULL,
                 "%s", error->message);
  case_free (&c);
}
END_TEST

/* Where a rank stands still within a launch, the others end by their deadline. */
START_TEST (a_rank_lost_in_a_launch_is_told)
{
  Case c;
  g_autoptr (GError) error = NULL;
  case_init_nccl (&c, 2, "strategy=optim_grads_params", TRUE);
  plant (&c);
  planted_ops.settle = settle_and_lose;
  c.job.timeout_s = SHORT_S;
  ck_assert (!case_run (&c, &error));
  ck_assert_msg (strstr (error->message, "the graph of a step (") != NULL
                     && strstr (error->message, "a rank is lost, or late") != NULL,
                 "%s", error->message);
  case_free (&c);
}
END_TEST

/* The same while algorithms of products are tried, behind gathers of the first step. */
START_TEST (a_rank_lost_while_products_are_tried_is_told)
{
  Case c;
  g_autoptr (GError) error = NULL;
  g_setenv ("XDG_DATA_HOME", "/dev/null", TRUE); /* no algorithm is remembered from earlier runs */
  case_init_nccl (&c, 2, "compute=bf16 strategy=optim_grads_params", FALSE);
  case_change (&c, "deterministic=off");
  c.job.timeout_s = SHORT_S;
  fake_nccl_lose (1, (guint)_i, FAKE_NCCL_STALLS);
  ck_assert (!case_run (&c, &error));
  ck_assert_msg (strstr (error->message, "a rank is lost, or late") != NULL, "%s", error->message);
  ck_assert_msg (strstr (fake_cuda_error (), "waits without end") == NULL, "%s",
                 fake_cuda_error ());
  case_free (&c);
}
END_TEST

/* Rank 1 is lost when ranks tell each other what they have written of a checkpoint. */
static gboolean
gather_and_lose (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                 void *stream, GError **error)
{
  if (!stream && self->rank == 1)
    fake_nccl_lose (1, 0, FAKE_NCCL_STALLS);
  return real_ops->all_gather (self, out, in, count, dtype, stream, error);
}

/* Rank 1 is lost before ranks meet for the first step, as when it reads a checkpoint. */
static gboolean
meet_and_lose (ExecComm *self, GError **error)
{
  if (self->rank == 1)
    fake_nccl_lose (1, 0, FAKE_NCCL_STALLS);
  return real_ops->barrier (self, error);
}

START_TEST (a_rank_lost_while_it_saves_or_loads_is_told)
{
  static const char *const places[] = { "checkpoint of step 2: ", "before step 3: " };
  Case c;
  g_autoptr (GError) error = NULL;
  g_autoptr (ExecCheckpoint) checkpoint = NULL;
  g_autofree char *folder = g_dir_make_tmp ("test-cuda-nccl-XXXXXX", NULL);
  case_init_nccl (&c, 2, "compute=bf16 strategy=optim_grads_params", FALSE);
  c.job.steps = 2;
  c.job.save = folder;
  if (_i == 1)
    {
      case_must_run (&c, "to be loaded");
      case_clear_results (&c);
      checkpoint = exec_checkpoint_open (folder, c.model, &error);
      ck_assert_msg (checkpoint != NULL, "%s", error ? error->message : "");
      c.job.save = NULL;
      c.job.resume = checkpoint;
      c.job.first_step = exec_checkpoint_step (checkpoint);
      c.job.first_token = exec_checkpoint_tokens (checkpoint);
    }
  plant (&c);
  planted_ops.all_gather = _i == 0 ? gather_and_lose : real_ops->all_gather;
  planted_ops.barrier = _i == 1 ? meet_and_lose : real_ops->barrier;
  c.job.timeout_s = SHORT_S;
  ck_assert (!case_run (&c, &error));
  ck_assert_msg (strstr (error->message, places[_i]) != NULL
                     && strstr (error->message, " has not ended after ") != NULL,
                 "%s", error->message);
  case_remove_folder (folder);
  case_free (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-nccl");
  TCase *tcase = tcase_create ("nccl");
  tcase_set_timeout (tcase, 300);
  test_add_runs (tcase, a_graph_changes_no_bit, G_N_ELEMENTS (plans));
  tcase_add_test (tcase, the_host_changes_no_bit);
  tcase_add_loop_test (tcase, the_host_waits_for_no_update, 0, 3);
  tcase_add_loop_test (tcase, the_host_waits_for_no_update_of_a_graph, 0, 2);
  tcase_add_test (tcase, one_rank_stops_all);
  tcase_add_test (tcase, products_leave_processors_to_nccl);
  tcase_add_test (tcase, a_communicator_takes_its_memory_first);
  tcase_add_loop_test (tcase, memory_beside_the_plan_is_told, 0, 2);
  tcase_add_loop_test (tcase, small_collectives_have_no_calls_of_their_own, 0, 2);
  tcase_add_test (tcase, launches_that_differ_are_found);
  tcase_add_test (tcase, a_rank_lost_in_a_launch_is_told);
  tcase_add_loop_test (tcase, a_rank_lost_while_products_are_tried_is_told, 5, 7);
  tcase_add_loop_test (tcase, a_rank_lost_while_it_saves_or_loads_is_told, 0, 2);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
