/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/mpi/wait.h"

#include "exec/comm/placement.h"
#include "planner/base/error.h"

#include <mpi.h>
#include <sched.h>

#define ASK 1  /* tag of messages that ask: are you there? */
#define HERE 2 /* tag of the answer, which repeats the number of the question */

#define PATIENCE_US (50 * 1000) /* waiting time before questions of others are looked for */
#define LOOK_EVERY_US (5 * 1000)
#define ROLL_SECONDS 5 /* most seconds in which ranks may answer a roll call */
#define END_SECONDS 30 /* seconds that the reporting rank has to end all others */
#define SHOWN_RANKS 8

gboolean
exec_mpi_check (int code, const char *call, GError **error)
{
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length;

  if (code == MPI_SUCCESS)
    return TRUE;
  MPI_Error_string (code, text, &length);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "%s: %s", call, text);
  return FALSE;
}

/* Sends a number without waiting. It is small enough to be sent at once; `number` must stay valid
 * nevertheless, so callers keep it in a static variable. */
static gboolean
post (const gint *number, int rank, int tag, GError **error)
{
  MPI_Request request;

  MPI_TRY (MPI_Isend (number, 1, MPI_INT, rank, tag, MPI_COMM_WORLD, &request), error);
  MPI_TRY (MPI_Request_free (&request), error);
  return TRUE;
}

/* Receives the next message of a kind, if one has come. */
static gboolean
take (int tag, int *out_rank, gint *out_number, gboolean *out_has, GError **error)
{
  MPI_Status status;
  int has;

  MPI_TRY (MPI_Iprobe (MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &has, &status), error);
  *out_has = has != 0;
  *out_rank = has ? status.MPI_SOURCE : -1;
  if (has)
    MPI_TRY (MPI_Recv (out_number, 1, MPI_INT, status.MPI_SOURCE, tag, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE),
             error);
  return TRUE;
}

/* Answers all questions that have come; `out_asked`: whether there were any. */
static gboolean
answer (gboolean *out_asked, GError **error)
{
  static gint answered; /* number of the last question */
  gboolean has = TRUE;
  int rank;

  *out_asked = FALSE;
  while (has)
    {
      if (!take (ASK, &rank, &answered, &has, error)
          || (has && !post (&answered, rank, HERE, error)))
        return FALSE;
      *out_asked |= has;
    }
  return TRUE;
}

/* One roll call: which ranks have answered. */
typedef struct
{
  int rank, ranks; /* of MPI_COMM_WORLD */
  gboolean *is_here;
  guint missing;
} Roll;

static gboolean
ask_all (Roll *roll, gint *question, GError **error)
{
  for (int r = 0; r < roll->ranks; r++)
    if (r != roll->rank && !post (question, r, ASK, error))
      return FALSE;
  roll->is_here[roll->rank] = TRUE;
  roll->missing = (guint)roll->ranks - 1;
  return TRUE;
}

static gboolean
hear_answers (Roll *roll, gint question, GError **error)
{
  gboolean has = TRUE, asked;
  gint number = 0;
  int rank;

  while (has)
    {
      if (!take (HERE, &rank, &number, &has, error))
        return FALSE;
      if (has && number == question && !roll->is_here[rank])
        {
          roll->is_here[rank] = TRUE;
          roll->missing--;
        }
    }
  return answer (&asked, error);
}

/* Asks all ranks whether they are there. Ends when all have answered, when time is over, or when
 * the request that was waited for is complete after all. */
static gboolean
call_roll (Roll *roll, const ExecComm *comm, MPI_Request *request, int *out_done, GError **error)
{
  static gint questions;
  const gint question = ++questions;
  const gint64 seconds = MIN (comm->timeout_s, ROLL_SECONDS);
  const gint64 end_us = g_get_monotonic_time () + seconds * G_USEC_PER_SEC;

  if (!ask_all (roll, &questions, error))
    return FALSE;
  while (roll->missing > 0 && g_get_monotonic_time () < end_us)
    {
      MPI_TRY (MPI_Test (request, out_done, MPI_STATUS_IGNORE), error);
      if (*out_done)
        return TRUE;
      if (!hear_answers (roll, question, error))
        return FALSE;
      g_usleep (1000);
    }
  return TRUE;
}

/* The missing ranks, as "rank 2 on b, rank 3 on b and 4 more". The caller frees. */
static char *
print_missing (const Roll *roll, const ExecComm *comm)
{
  GString *text = g_string_new (NULL);
  guint shown = 0;

  for (int r = 0; r < roll->ranks && shown < SHOWN_RANKS; r++)
    if (!roll->is_here[r])
      {
        g_string_append_printf (text, "%srank %d", shown++ ? ", " : "", r);
        if (comm->placement != NULL)
          g_string_append_printf (text, " on %s", exec_placement_host (comm->placement, (guint)r));
      }
  if (roll->missing > shown)
    g_string_append_printf (text, " and %u more", roll->missing - shown);
  return g_string_free (text, FALSE);
}

/* Leaves the report to the lowest rank that answers, which ends the run; the others wait for
 * that. */
static void
leave_report (const Roll *roll)
{
  const gint64 end_us = g_get_monotonic_time () + END_SECONDS * G_USEC_PER_SEC;
  int first = 0;

  while (!roll->is_here[first])
    first++;
  while (first != roll->rank && g_get_monotonic_time () < end_us)
    g_usleep (10000);
}

static gboolean
report (const Roll *roll, const ExecComm *comm, const char *call, GError **error)
{
  g_autofree char *missing = print_missing (roll, comm);

  /* A rank that was stopped (SIGSTOP) goes on when the run is ended, and then finds no other
   * rank. */
  if (roll->missing > 1 && (int)roll->missing == roll->ranks - 1)
    g_set_error (
        error, PLAN_ERROR, PLAN_ERROR_BACKEND,
        "%s: no other rank answers within the %u s of --timeout, not %s: all have ended, or "
        "this one was stopped",
        call, comm->timeout_s, missing);
  else if (roll->missing > 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND,
                 "%s: no sign of %s within the %u s of --timeout", call, missing, comm->timeout_s);
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND,
                 "%s: all ranks answer, and after twice the %u s of --timeout still wait for one "
                 "another",
                 call, comm->timeout_s);
  leave_report (roll);
  return FALSE;
}

/* What a rank does at its deadline. TRUE: it goes on waiting, because the request is done or all
 * ranks answered for the first time. */
static gboolean
find_missing (const ExecComm *comm, MPI_Request *request, const char *call, gboolean is_first,
              int *out_done, GError **error)
{
  Roll roll = { 0 };
  g_autofree gboolean *is_here = NULL;

  MPI_TRY (MPI_Comm_rank (MPI_COMM_WORLD, &roll.rank), error);
  MPI_TRY (MPI_Comm_size (MPI_COMM_WORLD, &roll.ranks), error);
  roll.is_here = is_here = g_new0 (gboolean, roll.ranks);
  if (!call_roll (&roll, comm, request, out_done, error))
    return FALSE;
  return *out_done || (roll.missing == 0 && is_first) || report (&roll, comm, call, error);
}

gboolean
exec_mpi_wait (const ExecComm *comm, void *request, const char *call, GError **error)
{
  const gint64 timeout_us = comm->timeout_s * (gint64)G_USEC_PER_SEC;
  gint64 begin_us = 0, looked_us = 0;
  gboolean asked = FALSE, is_first = TRUE;
  int done = 0;

  for (guint turn = 0; !done; turn++)
    {
      MPI_TRY (MPI_Test (request, &done, MPI_STATUS_IGNORE), error);
      if (done || turn % 16 != 15)
        continue;
      sched_yield (); /* the other rank may need this processor */
      if (timeout_us == 0)
        continue;
      const gint64 now_us = g_get_monotonic_time ();
      if (begin_us == 0)
        begin_us = now_us;
      if (now_us - begin_us < PATIENCE_US || now_us - looked_us < LOOK_EVERY_US)
        continue;
      looked_us = now_us;
      if (!answer (&asked, error))
        return FALSE;
      if (!asked && now_us - begin_us < timeout_us)
        continue;
      if (!find_missing (comm, request, call, is_first, &done, error))
        return FALSE;
      is_first = asked; /* a question of another rank does not count as this rank's own deadline */
      begin_us = 0;
    }
  return TRUE;
}
