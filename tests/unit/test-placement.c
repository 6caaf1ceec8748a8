/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on made-up hosts: where plans want them, what they must agree on, and which ranks are
 * slow. */
#include "config.h"

#include "exec/comm/placement.h"
#include "exec/walk/stragglers.h"
#include "planner/base/error.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A placement from text such as "aabb": the host of each rank by a letter. */
static ExecPlacement *
placed (const char *letters)
{
  ExecPlacement *self = g_new0 (ExecPlacement, 1);
  self->ranks = (guint)strlen (letters);
  self->host_names = g_new0 (char *, self->ranks + 1);
  self->host_of = g_new0 (guint, self->ranks);
  for (guint r = 0; r < self->ranks; r++)
    {
      guint h = 0;
      while (h < self->hosts && self->host_names[h][0] != letters[r])
        h++;
      if (h == self->hosts)
        self->host_names[self->hosts++] = g_strndup (letters + r, 1);
      self->host_of[r] = h;
    }
  return self;
}

static const struct
{
  const char *hosts;
  gint64 nodes, per_node;
  const char *message; /* NULL: the placement is as the plan says */
} clusters[] = {
  { "aabb", 2, 2, NULL },
  { "aaaa", 1, 4, NULL },
  { "ab", 2, 1, NULL },
  { "aa", 2, 2,
    "the plan is for 4 ranks, 2 x 2 of mine, and the launcher started 2: 2 too few "
    "(ranks on a: 0-1)" },
  { "aaabbb", 2, 2, "the launcher started 6: 2 too many (ranks on a: 0-2; b: 3-5)" },
  { "abab", 2, 2,
    "ranks 0 and 1 are of one node of the plan and lie on a and b: place 2 ranks that follow one "
    "another on each host (mpirun --map-by ppr:2:node, srun --distribution=block) (ranks on a: 0, "
    "2; "
    "b: 1, 3)" },
  { "aaab", 2, 2, "ranks 1 and 2 are of two nodes of the plan and both lie on a" },
  { "aaaa", 2, 2, "ranks 1 and 2 are of two nodes of the plan and both lie on a: mine has 2" },
  { "abcdefghijklmnop", 1, 16, "; h: 7; and 8 more hosts)" },
};

START_TEST (nodes_are_hosts)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (ExecPlacement) placement = placed (clusters[_i].hosts);
  const PlanCluster cluster = { .name = (char *)"mine",
                                .nodes = clusters[_i].nodes,
                                .devices_per_node = clusters[_i].per_node };
  const gboolean ok = exec_placement_check (placement, &cluster, &error);
  ck_assert (ok == (clusters[_i].message == NULL));
  if (ok)
    return;
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (strstr (error->message, clusters[_i].message), "'%s' does not hold '%s'",
                 error->message, clusters[_i].message);
}
END_TEST

static const struct
{
  const char *hosts;
  guint size;
  gboolean ok;
} groups[] = {
  { "aabb", 2, TRUE },   { "abab", 2, FALSE },    { "aabb", 4, TRUE /* no host has room for 4 */ },
  { "aaab", 2, FALSE },  { "aaaabbbb", 2, TRUE }, { "abababab", 4, FALSE },
  { "aabbaa", 2, TRUE }, { "a", 1, TRUE },
};

static const struct
{
  const char *hosts;
  guint nodes;
} launches[] = { { "aabb", 2 }, { "aaaa", 1 },   { "abcd", 4 }, { "abab", 1 }, { "aabbb", 1 },
                 { "aaba", 1 }, { "aabbaa", 1 }, { "baab", 1 }, { "a", 1 } };

/* Hosts make a cluster only if they are whole nodes, one after the other. */
START_TEST (hosts_are_nodes)
{
  g_autoptr (ExecPlacement) placement = placed (launches[_i].hosts);
  ck_assert_uint_eq (exec_placement_nodes (placement), launches[_i].nodes);
}
END_TEST

START_TEST (groups_lie_on_one_host)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (ExecPlacement) placement = placed (groups[_i].hosts);
  ck_assert (exec_placement_check_group (placement, groups[_i].size, &error) == groups[_i].ok);
  ck_assert (groups[_i].ok || strstr (error->message, "place ranks that follow one another"));
}
END_TEST

/* --- agreement, by ranks that are threads -------------------------------------------------- */

#define RANKS 3

typedef struct
{
  ExecComm *comm;
  const ExecPlacement *placement;
  const char *plan;
  GError *error;
  gboolean ok;
} Voter;

static gpointer
vote (gpointer data)
{
  Voter *self = data;
  const ExecAgreed agreed[] = { { "model", "layers=2\n" }, { "plan", self->plan } };
  self->ok = exec_placement_agree (self->placement, self->comm, agreed, G_N_ELEMENTS (agreed),
                                   &self->error);
  self->comm->ops->close (self->comm);
  return NULL;
}

static const struct
{
  const char *plans[RANKS];
  const char *message;
} votes[] = {
  { { "mbs=1\nseq=8\n", "mbs=1\nseq=8\n", "mbs=1\nseq=8\n" }, NULL },
  { { "mbs=1\nseq=8\n", "mbs=1\nseq=8\n", "mbs=2\nseq=8\n" },
    "rank 2 on b has another plan than rank 0 on a: mbs=2, not mbs=1" },
  { { "mbs=1\nseq=8\n", "mbs=1\nclip=2\nseq=8\n", "mbs=2\nseq=8\n" },
    "rank 1 on a has another plan than rank 0 on a: clip=2, which rank 0 does not have" },
  { { "mbs=1\nseq=8\n", "seq=8\n", "mbs=1\nseq=8\n" }, "no mbs=1, which rank 0 has" },
  { { "mbs=1\n", "mbs=1\n", "mbs=1" }, "rank 2 on b has another plan" },
};

START_TEST (all_have_the_same)
{
  g_autoptr (ExecPlacement) placement = placed ("aab");
  ExecComm *comms[RANKS];
  Voter voters[RANKS] = { { 0 } };
  GThread *threads[RANKS];
  ck_assert (exec_comm_threads_open (RANKS, comms, NULL));
  for (guint r = 0; r < RANKS; r++)
    {
      voters[r] = (Voter){ .comm = comms[r], .placement = placement, .plan = votes[_i].plans[r] };
      threads[r] = g_thread_new ("rank", vote, &voters[r]);
    }
  for (guint r = 0; r < RANKS; r++)
    g_thread_join (threads[r]);
  for (guint r = 0; r < RANKS; r++)
    {
      ck_assert (voters[r].ok == (votes[_i].message == NULL));
      ck_assert_msg (voters[r].ok || strstr (voters[r].error->message, votes[_i].message), "%s",
                     voters[r].error->message);
      g_clear_error (&voters[r].error);
    }
}
END_TEST

static gpointer
gather (gpointer data)
{
  Voter *self = data;
  g_autoptr (ExecPlacement) placement = exec_placement_gather (self->comm, &self->error);
  self->ok = placement && placement->hosts == 1 && placement->ranks == RANKS
             && g_str_equal (exec_placement_host (placement, 2), "node7");
  self->comm->ops->close (self->comm);
  return NULL;
}

START_TEST (hosts_are_gathered)
{
  ExecComm *comms[RANKS];
  Voter voters[RANKS] = { { 0 } };
  GThread *threads[RANKS];
  g_setenv ("SLURMD_NODENAME", "node7", TRUE);
  ck_assert (exec_comm_threads_open (RANKS, comms, NULL));
  for (guint r = 0; r < RANKS; r++)
    {
      voters[r].comm = comms[r];
      threads[r] = g_thread_new ("rank", gather, &voters[r]);
    }
  for (guint r = 0; r < RANKS; r++)
    g_thread_join (threads[r]);
  for (guint r = 0; r < RANKS; r++)
    ck_assert (voters[r].ok && voters[r].error == NULL);
}
END_TEST

/* --- who is slow --------------------------------------------------------------------------- */

START_TEST (stragglers_are_over_the_median)
{
  static const gint64 own[] = { 100, 101, 250, 99, 121, 100 };
  ExecRankTime times[G_N_ELEMENTS (own)] = { { 0 } };
  g_auto (ExecStragglers) spread = { 0 };
  for (guint r = 0; r < G_N_ELEMENTS (own); r++)
    times[r].own_ns = own[r];
  exec_stragglers_init (&spread, times, G_N_ELEMENTS (own));
  ck_assert_uint_eq (spread.slowest, 2);
  ck_assert_int_eq (spread.median_own_ns, 100);
  ck_assert (spread.spread_pct > 152.5 && spread.spread_pct < 152.6);
  ck_assert_uint_eq (spread.stragglers->len, 2);
  ck_assert_uint_eq (g_array_index (spread.stragglers, guint, 0), 2);
  ck_assert_uint_eq (g_array_index (spread.stragglers, guint, 1), 4);
  ck_assert (exec_stragglers_over_pct (&spread, &times[2]) == 150);
}
END_TEST

/* With two ranks there is no median between them: the slower one is compared with the faster
 * one. */
START_TEST (of_two_one_may_be_slow)
{
  const ExecRankTime times[] = { { .own_ns = 300 }, { .own_ns = 100 } };
  g_auto (ExecStragglers) spread = { 0 };
  exec_stragglers_init (&spread, times, 2);
  ck_assert_uint_eq (spread.slowest, 0);
  ck_assert_uint_eq (spread.stragglers->len, 1);
  g_auto (ExecStragglers) still = { 0 };
  const ExecRankTime none[] = { { .own_ns = 0 }, { .own_ns = 0 } };
  exec_stragglers_init (&still, none, 2);
  ck_assert_uint_eq (still.stragglers->len, 0);
  ck_assert (still.spread_pct == 0);
}
END_TEST

START_TEST (the_first_step_is_left_out)
{
  gint64 step[] = { 1000, 10, 20 }, own[] = { 900, 6, 8 };
  const ExecResult result = { .step_ns = step, .own_ns = own };
  ExecRankTime time;
  exec_rank_time (&result, 3, &time);
  ck_assert_int_eq (time.step_ns, 15);
  ck_assert_int_eq (time.own_ns, 7);
  ck_assert_int_eq (time.longest_step_ns, 20);
  exec_rank_time (&result, 1, &time);
  ck_assert_int_eq (time.own_ns, 900);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("placement");
  TCase *tcase = tcase_create ("placement");
  tcase_add_loop_test (tcase, nodes_are_hosts, 0, G_N_ELEMENTS (clusters));
  tcase_add_loop_test (tcase, hosts_are_nodes, 0, G_N_ELEMENTS (launches));
  tcase_add_loop_test (tcase, groups_lie_on_one_host, 0, G_N_ELEMENTS (groups));
  tcase_add_loop_test (tcase, all_have_the_same, 0, G_N_ELEMENTS (votes));
  tcase_add_test (tcase, hosts_are_gathered);
  tcase_add_test (tcase, stragglers_are_over_the_median);
  tcase_add_test (tcase, of_two_one_may_be_slow);
  tcase_add_test (tcase, the_first_step_is_left_out);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
