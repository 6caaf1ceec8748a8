/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm/late.h"
#include "exec/comm/launch.h"
#include "planner/base/error.h"

#include <check.h>
#include <stdlib.h>

static const char *const variables[] = {
  "RANK",           "WORLD_SIZE",      "LOCAL_RANK",    "MASTER_ADDR",
  "MASTER_PORT",    "NCCL_COMM_ID",    "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK",
  "PMI_LOCAL_RANK", "MPI_LOCALRANKID",
};

/* Sets "NAME=VALUE ..." and nothing else. */
static void
set_environment (const char *text)
{
  g_auto (GStrv) words = g_strsplit (text, " ", -1);

  for (guint i = 0; i < G_N_ELEMENTS (variables); i++)
    g_unsetenv (variables[i]);
  for (guint i = 0; words[i] != NULL && *words[i] != '\0'; i++)
    {
      g_auto (GStrv) pair = g_strsplit (words[i], "=", 2);

      g_setenv (pair[0], pair[1], TRUE);
    }
}

static const struct
{
  const char *environment;
  guint rank, ranks, local_rank;
  const char *meeting;
} good[] = {
  { "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node1 MASTER_PORT=29400", 3, 8, 1,
    "node1:29401" },
  { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.0.0.7", 0, 2, 0, "10.0.0.7:29501" },
  { "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=fd00::1 MASTER_PORT=1", 1, 2, 1, "[fd00::1]:2" },
  { "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=x NCCL_COMM_ID=y:9", 1, 2, 1, "y:9" },
  { "RANK=1 WORLD_SIZE=2 SLURM_LOCALID=1 NCCL_COMM_ID=y:9", 1, 2, 1, "y:9" },
  { "RANK=0 WORLD_SIZE=1", 0, 1, 0, NULL },
};

START_TEST (launch_reads_the_environment)
{
  g_auto (ExecLaunch) launch = { 0 };
  g_autoptr (GError) error = NULL;

  set_environment (good[_i].environment);
  ck_assert (exec_launch_is_there ());
  ck_assert_msg (exec_launch_read (&launch, &error), "%s", error != NULL ? error->message : "");
  ck_assert_uint_eq (launch.rank, good[_i].rank);
  ck_assert_uint_eq (launch.ranks, good[_i].ranks);
  ck_assert_uint_eq (launch.local_rank, good[_i].local_rank);
  ck_assert_pstr_eq (launch.meeting, good[_i].meeting);
}
END_TEST

static const struct
{
  const char *environment, *message;
} bad[] = {
  { "RANK=0",
    "WORLD_SIZE is not set: a launcher sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
    "MASTER_PORT" },
  { "RANK=8 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=x",
    "RANK: '8' is out of range: it must be from 0 to 7" },
  { "RANK=x WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=x",
    "RANK: 'x' is not a whole number in decimal digits: it must be from 0 to 7" },
  { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", "MASTER_ADDR is not set: it says on which host rank 0 is" },
  { "RANK=0 WORLD_SIZE=2 MASTER_ADDR=x",
    "LOCAL_RANK is not set: a launcher sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
    "MASTER_PORT" },
  { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=-1 MASTER_ADDR=x",
    "LOCAL_RANK: '-1' is out of range: it must be from 0 to 1" },
  { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=x MASTER_PORT=65535",
    "MASTER_PORT: '65535' is out of range: it must be from 1 to 65534" },
};

START_TEST (launch_names_what_is_wrong)
{
  g_auto (ExecLaunch) launch = { 0 };
  g_autoptr (GError) error = NULL;

  set_environment (bad[_i].environment);
  ck_assert (!exec_launch_read (&launch, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_str_eq (error->message, bad[_i].message);
}
END_TEST

START_TEST (no_launch_without_its_variables)
{
  guint local_rank;

  set_environment ("");
  ck_assert (!exec_launch_is_there ());
  ck_assert (!exec_launch_local_rank (&local_rank));
  set_environment ("WORLD_SIZE=2");
  ck_assert (!exec_launch_is_there ());
  set_environment ("OMPI_COMM_WORLD_LOCAL_RANK=5");
  ck_assert (exec_launch_local_rank (&local_rank));
  ck_assert_uint_eq (local_rank, 5);
}
END_TEST

/* Every call that needs a missing library says that it is missing and how to get it. */
START_TEST (libraries_are_looked_for_late)
{
  ExecLate none = { .name = "libimagined.so.7", .remedy = "imagine it" };
  ExecLate some = { .name = "libc.so.6", .remedy = "a miracle" };

  for (guint i = 0; i < 2; i++)
    {
      ck_assert_ptr_null (exec_late_find (&none, "imagine"));
      ck_assert (g_str_has_prefix (none.why, "libimagined.so.7: "));
      ck_assert (g_str_has_suffix (none.why, ": imagine it"));
      ck_assert_ptr_nonnull (exec_late_find (&some, "strlen"));
      ck_assert_ptr_null (exec_late_find (&some, "a_function_of_later_versions"));
      ck_assert_ptr_null (some.why);
    }
  g_free (none.why);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("launch");
  TCase *tcase = tcase_create ("launch");
  SRunner *runner;
  int failed;

  tcase_add_loop_test (tcase, launch_reads_the_environment, 0, G_N_ELEMENTS (good));
  tcase_add_loop_test (tcase, launch_names_what_is_wrong, 0, G_N_ELEMENTS (bad));
  tcase_add_test (tcase, no_launch_without_its_variables);
  tcase_add_test (tcase, libraries_are_looked_for_late);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
