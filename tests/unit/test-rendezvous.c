/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads that find each other over the loopback; with strangers, ranks that do not come,
 * and ranks that come twice. */
#include "config.h"

#include "exec/comm/rendezvous.h"
#include "planner/base/error.h"
#include "tests/unit/test-comm-ranks.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 17
#define BYTES 300

typedef struct
{
  const char *meeting;
  guint rank, ranks, timeout_s, bytes;
  guint8 own[BYTES], all[MOST][BYTES];
  GError *error;
  gboolean ok;
} One;

static gpointer
meet (gpointer data)
{
  One *self = data;
  self->ok = exec_rendezvous (self->meeting, self->rank, self->ranks, self->all, self->own,
                              self->bytes, self->timeout_s, &self->error);
  return NULL;
}

/* Runs `n` ranks at once, of `ranks`; `number` gives each one's rank. */
static void
run (One *ones, guint n, guint ranks, const guint *number, const char *meeting, guint timeout_s)
{
  GThread *threads[MOST];
  for (guint i = 0; i < n; i++)
    {
      ones[i] = (One){ .meeting = meeting,
                       .rank = number ? number[i] : i,
                       .ranks = ranks,
                       .timeout_s = timeout_s,
                       .bytes = BYTES };
      memset (ones[i].own, (int)ones[i].rank + 1, BYTES);
    }
  for (guint i = n; i-- > 0;) /* rank 0 comes last */
    threads[i] = g_thread_new ("one", meet, &ones[i]);
  for (guint i = 0; i < n; i++)
    g_thread_join (threads[i]);
}

START_TEST (all_hear_all)
{
  static const guint ranks[] = { 1, 2, 3, MOST };
  g_autofree One *ones = g_new0 (One, MOST);
  g_autofree char *meeting = test_free_meeting ();
  run (ones, ranks[_i], ranks[_i], NULL, meeting, 60);
  for (guint i = 0; i < ranks[_i]; i++)
    {
      ck_assert_msg (ones[i].ok, "%s", ones[i].error ? ones[i].error->message : "");
      for (guint r = 0; r < ranks[_i]; r++)
        for (guint b = 0; b < BYTES; b++)
          ck_assert_uint_eq (ones[i].all[r][b], r + 1);
    }
}
END_TEST

static char *
message_of (One *one)
{
  ck_assert (!one->ok);
  ck_assert_ptr_nonnull (one->error);
  char *text = g_strdup (one->error->message);
  g_clear_error (&one->error);
  return text;
}

START_TEST (who_is_missing_is_named)
{
  static const guint number[] = { 0, 2 };
  g_autofree One *ones = g_new0 (One, MOST);
  g_autofree char *meeting = test_free_meeting ();
  run (ones, 2, 4, number, meeting, 1);
  g_autofree char *first = message_of (&ones[0]), *other = message_of (&ones[1]);
  g_autofree char *expected = g_strdup_printf (
      "rank 0, at %s, where ranks meet: no sign of ranks 1, 3 within 1 s", meeting);
  ck_assert_str_eq (first, expected);
  ck_assert (g_str_has_prefix (other, "rank 2, at "));
}
END_TEST

START_TEST (nobody_is_there)
{
  static const guint number[] = { 1 };
  g_autofree One *ones = g_new0 (One, MOST);
  g_autofree char *meeting = test_free_meeting ();
  run (ones, 1, 2, number, meeting, 1);
  g_autofree char *text = message_of (&ones[0]);
  ck_assert_msg (strstr (text, "rank 0 is not reached within 1 s: Connection refused; MASTER_ADDR"),
                 "%s", text);
}
END_TEST

START_TEST (a_rank_comes_once)
{
  static const guint number[] = { 0, 1, 1 };
  g_autofree One *ones = g_new0 (One, MOST);
  g_autofree char *meeting = test_free_meeting ();
  run (ones, 3, 3, number, meeting, 60);
  g_autofree char *text = message_of (&ones[0]);
  ck_assert_msg (strstr (text, "two processes say that they are rank 1"), "%s", text);
  for (guint i = 1; i < 3; i++)
    g_clear_error (&ones[i].error);
}
END_TEST

/* Sends words that no rank sends. */
static gpointer
disturb (gpointer data)
{
  static const char words[38] = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
  const char *port = strrchr (data, ':') + 1;
  struct sockaddr_in to = { .sin_family = AF_INET,
                            .sin_addr.s_addr = htonl (INADDR_LOOPBACK),
                            .sin_port = htons ((guint16)atoi (port)) };
  for (guint tries = 0; tries < 10000000; tries++)
    {
      const int fd = socket (AF_INET, SOCK_STREAM, 0);
      const gboolean is_there = connect (fd, (struct sockaddr *)&to, sizeof to) == 0;
      if (is_there)
        send (fd, words, sizeof words, MSG_NOSIGNAL);
      close (fd);
      if (is_there)
        return GINT_TO_POINTER (TRUE);
      g_thread_yield ();
    }
  return NULL;
}

START_TEST (strangers_are_sent_away)
{
  g_autofree char *meeting = test_free_meeting ();
  One ones[2] = { { .meeting = meeting, .ranks = 2, .timeout_s = 60, .bytes = BYTES },
                  { .meeting = meeting, .rank = 1, .ranks = 2, .timeout_s = 60, .bytes = BYTES } };
  GThread *root = g_thread_new ("root", meet, &ones[0]);
  ck_assert_ptr_nonnull (disturb (meeting));
  meet (&ones[1]);
  g_thread_join (root);
  ck_assert (ones[0].ok && ones[1].ok);
}
END_TEST

START_TEST (a_port_is_needed)
{
  static const char *const wrong[] = { "here", "here:", ":9" };
  g_autoptr (GError) error = NULL;
  guint8 own = 0, all[2];
  ck_assert (!exec_rendezvous (wrong[_i], 1, 2, all, &own, 1, 1, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert (g_str_has_suffix (error->message, "is not HOST:PORT"));
}
END_TEST

static gpointer
answer (gpointer data)
{
  One *self = data;
  self->ok = exec_rendezvous_roll (self->meeting, self->rank, self->ranks, self->all[0],
                                   self->timeout_s, &self->error);
  return NULL;
}

static const struct
{
  guint ranks, timeout_s;
  guint8 is_here[4];
} rolls[] = { { 1, 60, { 1 } }, { 3, 60, { 1, 1, 1 } }, { 4, 1, { 1, 0, 1, 0 } } };

/* All ranks that have come learn which ranks have come, and which have not. */
START_TEST (a_roll_names_who_is_there)
{
  const guint ranks = rolls[_i].ranks;
  g_autofree One *ones = g_new0 (One, MOST);
  g_autofree char *meeting = test_free_meeting ();
  GThread *threads[4] = { NULL };
  for (guint r = ranks; r-- > 0;)
    {
      ones[r] = (One){
        .meeting = meeting, .rank = r, .ranks = ranks, .timeout_s = rolls[_i].timeout_s
      };
      if (rolls[_i].is_here[r])
        threads[r] = g_thread_new ("one", answer, &ones[r]);
    }
  for (guint r = 0; r < ranks; r++)
    if (threads[r])
      {
        g_thread_join (threads[r]);
        ck_assert_msg (ones[r].ok, "%s", ones[r].error ? ones[r].error->message : "");
        ck_assert_mem_eq (ones[r].all[0], rolls[_i].is_here, ranks);
      }
}
END_TEST

START_TEST (a_roll_without_rank_0_fails)
{
  g_autofree char *meeting = test_free_meeting ();
  One one = { .meeting = meeting, .rank = 1, .ranks = 2, .timeout_s = 1 };
  answer (&one);
  g_autofree char *text = message_of (&one);
  ck_assert_msg (strstr (text, "rank 0 is not reached within 1 s"), "%s", text);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("rendezvous");
  TCase *tcase = tcase_create ("rendezvous");
  tcase_set_timeout (tcase, 120);
  tcase_add_loop_test (tcase, all_hear_all, 0, 4);
  tcase_add_test (tcase, who_is_missing_is_named);
  tcase_add_test (tcase, nobody_is_there);
  tcase_add_test (tcase, a_rank_comes_once);
  tcase_add_test (tcase, strangers_are_sent_away);
  tcase_add_loop_test (tcase, a_port_is_needed, 0, 3);
  tcase_add_loop_test (tcase, a_roll_names_who_is_there, 0, 3);
  tcase_add_test (tcase, a_roll_without_rank_0_fails);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
