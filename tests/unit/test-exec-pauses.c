/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do together between two steps: whether they save a checkpoint, and as whose time their
 * waits are counted. */
#include "config.h"

#include "exec/probe/probe.h"
#include "exec/walk/exec.h"
#include "planner/base/error.h"
#include "planner/lower/lower.h"
#include "tests/case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2
#define MODEL \
  "family=llama,layers=1,hidden=8,ffn=4,heads=1,kv_heads=1,head_dim=8,vocab=16,max_seq=8"

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of;
  ExecKernels kernels;
  ExecJob job;
} Case;

static void
case_init (Case *c, guint ranks, const char *words, gint64 steps)
{
  g_autofree char *all = g_strconcat ("stack=native compute=fp32 gbs=2 seq=8 ", words, NULL);
  c->model = plan_model_new (MODEL, NULL);
  c->cluster = exec_probe_processors (ranks, NULL);
  c->of = test_case (c->model, c->cluster, all);
  c->kernels = exec_kernels_cpu;
  c->job = (ExecJob){ .of = c->of,
                      .kernels = &c->kernels,
                      .seed = 1,
                      .steps = steps,
                      .constants = { .norm_eps = 1e-5,
                                     .rope = c->model->rope,
                                     .lr = 1e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .adam_eps = 1e-8,
                                     .max_norm = 1 } };
}

static void
case_clear (Case *c)
{
  plan_case_free (c->of);
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

/* --- a checkpoint on request ----------------------------------------------------------------- */

static gint asked; /* how often ranks asked whether they are to end */
static gint clips; /* how often ranks scaled gradients */
static gint last_step;

/* Asks ranks to end after step `last_step`: they look once before each step. */
static gboolean
is_stopping (void)
{
  return g_atomic_int_add (&asked, 1) >= last_step * RANKS;
}

/* Makes the norm of one rank not finite in the second step. */
static void
clip_with_nan (const ExecArgs *args)
{
  exec_kernels_cpu.run[PLAN_OP_CLIP](args);
  if (g_atomic_int_add (&clips, 1) == RANKS)
    ((float *)args->ptr[PLAN_REF_CLIP_coef])[1] = NAN;
}

typedef struct
{
  const ExecJob *job;
  ExecComm *comm;
  char *message;
} Rank;

static gpointer
run_rank (gpointer data)
{
  Rank *self = data;
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) error = NULL;
  if (!exec_run_rank (self->job, self->comm, FALSE, NULL, NULL, &result, &error))
    {
      self->comm->ops->abort (self->comm, error->message);
      self->message = g_strdup (error->message);
    }
  self->comm->ops->close (self->comm);
  return NULL;
}

/* A job whose second step is unsound on one rank, which is asked to end after step `last`. */
static void
unsound_case_init (Case *c, const char *folder, guint steps, gint last)
{
  case_init (c, RANKS, "strategy=no_shard", steps);
  asked = clips = 0;
  last_step = last;
  c->kernels.run[PLAN_OP_CLIP] = clip_with_nan;
  c->job.is_stopping = is_stopping;
  c->job.skip_nonfinite = 1;
  c->job.save = folder;
}

/* Runs the job until it ends on request, which all ranks must report in the same words. */
static void
run_until_stopped (const ExecJob *job, const char *message)
{
  ExecComm *comms[RANKS];
  Rank ranks[RANKS];
  GThread *threads[RANKS];
  ck_assert (exec_comm_threads_open (RANKS, comms, NULL));
  for (guint r = 0; r < RANKS; r++)
    {
      ranks[r] = (Rank){ .job = job, .comm = comms[r] };
      threads[r] = g_thread_new ("rank", run_rank, &ranks[r]);
    }
  for (guint r = 0; r < RANKS; r++)
    g_thread_join (threads[r]);
  for (guint r = 0; r < RANKS; r++)
    {
      ck_assert_str_eq (ranks[r].message, message);
      g_free (ranks[r].message);
    }
}

/* All ranks end alike, and none waits for another one's files. */
START_TEST (a_step_unsound_on_one_rank_is_saved_by_none)
{
  g_autofree char *folder = g_dir_make_tmp ("test-exec-pauses-XXXXXX", NULL);
  g_autofree char *clean = g_strdup_printf ("rm -r '%s'", folder);
  g_auto (Case) c = { 0 };
  unsound_case_init (&c, folder, 4, 2);
  run_until_stopped (&c.job, "asked to end: 2 steps are done");
  ck_assert_int_eq (clips, 2 * RANKS);
  ck_assert_int_eq (system (clean), 0);
}
END_TEST

/* Counts the checkpoints of a step in a folder. */
static guint
count_checkpoints (const char *folder, const char *prefix)
{
  guint n = 0;
  GDir *dir = g_dir_open (folder, 0, NULL);
  ck_assert_ptr_nonnull (dir);
  for (const char *name; (name = g_dir_read_name (dir));)
    n += g_str_has_prefix (name, prefix);
  g_dir_close (dir);
  return n;
}

/* A checkpoint that was due after an unsound step is made one step late. A request to end that
 * comes then finds it made. */
START_TEST (a_late_checkpoint_is_made_once)
{
  g_autofree char *folder = g_dir_make_tmp ("test-exec-pauses-XXXXXX", NULL);
  g_autofree char *clean = g_strdup_printf ("rm -r '%s'", folder);
  g_autofree char *message = g_strdup_printf (
      "asked to end: 3 steps are done, and --resume %s goes on from there", folder);
  g_auto (Case) c = { 0 };
  unsound_case_init (&c, folder, 5, 3);
  c.job.save_every = 2;
  c.job.keep = 4;
  run_until_stopped (&c.job, message);
  ck_assert_int_eq (count_checkpoints (folder, "step-2."), 0);
  ck_assert_int_eq (count_checkpoints (folder, "step-3."), 1);
  ck_assert_int_eq (system (clean), 0);
}
END_TEST

/* --- waits are not a rank's own time ---------------------------------------------------------- */

static const ExecCommOps *plain;
static gint64 waited_ns;

/* An all-reduce that takes a while, as where other ranks are late. */
static gboolean
late_all_reduce (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                 GError **error)
{
  const gint64 begin = g_get_monotonic_time ();
  while (g_get_monotonic_time () - begin < 5000)
    ;
  waited_ns += 1000 * (g_get_monotonic_time () - begin);
  return plain->all_reduce (comm, buf, count, dtype, stream, error);
}

START_TEST (counting_tokens_together_is_a_wait)
{
  ExecComm *comm = exec_comm_self_open ();
  ExecCommOps late = *comm->ops;
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) error = NULL;
  g_auto (Case) c = { 0 };
  case_init (&c, 1, "strategy=no_shard eod_mask_loss=on per_token_loss=on", 1);
  plain = comm->ops;
  late.all_reduce = late_all_reduce;
  comm->ops = &late;
  waited_ns = 0;
  ck_assert_msg (exec_run_rank (&c.job, comm, FALSE, NULL, NULL, &result, &error), "%s",
                 error ? error->message : "");
  ck_assert_int_gt (waited_ns, 0);
  ck_assert_int_le (result.own_ns[0] + waited_ns, result.step_ns[0] + 1000);
  comm->ops = plain;
  comm->ops->close (comm);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("exec-pauses");
  TCase *tcase = tcase_create ("pauses");
  tcase_add_test (tcase, a_step_unsound_on_one_rank_is_saved_by_none);
  tcase_add_test (tcase, a_late_checkpoint_is_made_once);
  tcase_add_test (tcase, counting_tokens_together_is_a_wait);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
