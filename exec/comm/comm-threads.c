/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm.h"
#include "planner/base/error.h"

#include <string.h>

/* Ranks that are threads and read each other's buffers. In a collective each rank posts its buffer
 * and meets the others; works; and meets them again, so that no buffer changes while another rank
 * reads it. */

/* What a rank posts for a collective. */
typedef struct
{
  const char *name; /* of the collective */
  const void *in;
  guint64 count;
  PlanDtype dtype;
} Post;

/* What one rank sends to another one: its buffer, which stays in place until the other has copied
 * it. */
typedef struct
{
  Post post;
  enum
  {
    LETTER_NONE,
    LETTER_POSTED,
    LETTER_READ /* being copied */
  } state;
} Letter;

/* What all ranks of a run share, whichever groups they meet in. */
typedef struct
{
  GMutex mutex;
  GCond changed;
  gatomicrefcount teams;
  char *reason; /* why the run failed; NULL: it has not */
} Crew;

/* What the ranks of one communicator share. The last rank to close frees it. */
typedef struct _Team Team;
struct _Team
{
  Crew *crew;
  guint ranks, open;
  guint waiting;    /* ranks that wait in the current meeting */
  guint64 meetings; /* number of meetings that are over */
  char *closed;     /* who closed first; NULL: nobody has */
  Post *posts;      /* [ranks]; read between the two meetings of a collective only */
  Letter *letters;  /* [sender * ranks + receiver] */
  Team **groups;    /* [ranks]: while groups are made, the teams that their first ranks made */
};

typedef struct
{
  ExecComm comm;
  Team *team;
} ThreadsComm;

static guint64
bytes_of (const Post *post, guint64 count)
{
  return plan_dtype_bytes (post->dtype, count);
}

static const guint8 *
posted (const Team *team, guint rank)
{
  return team->posts[rank].in;
}

static Team *
team_new (Crew *crew, guint ranks)
{
  Team *team = g_new0 (Team, 1);

  g_atomic_ref_count_inc (&crew->teams);
  team->crew = crew;
  team->ranks = team->open = ranks;
  team->posts = g_new0 (Post, ranks);
  team->letters = g_new0 (Letter, (gsize)ranks * ranks);
  team->groups = g_new0 (Team *, ranks);
  return team;
}

static void
crew_unref (Crew *crew)
{
  if (!g_atomic_ref_count_dec (&crew->teams))
    return;
  g_mutex_clear (&crew->mutex);
  g_cond_clear (&crew->changed);
  g_free (crew->reason);
  g_free (crew);
}

static void
team_free (Team *team)
{
  crew_unref (team->crew);
  g_free (team->closed);
  g_free (team->posts);
  g_free (team->letters);
  g_free (team->groups);
  g_free (team);
}

/* Why a team cannot meet any more; NULL: it can. */
static const char *
reason_of (const Team *team)
{
  return team->crew->reason != NULL ? team->crew->reason : team->closed;
}

/* Sets a reason unless there is one, and wakes all who wait. The mutex is held. */
static void
give_reason (Team *team, char **reason, guint rank, const char *why)
{
  if (*reason == NULL)
    *reason = g_strdup_printf ("rank %u %s", rank, why);
  g_cond_broadcast (&team->crew->changed);
}

/* Waits until every rank has come to this meeting. The mutex is held. `can_fail`: the wait also
 * ends, with FALSE, when there is a reason to. Once all ranks are inside a collective none of them
 * can be kept from finishing it, so their second meeting cannot fail. */
static gboolean
meet (Team *team, gboolean can_fail)
{
  guint64 meeting = team->meetings;

  if (++team->waiting == team->ranks)
    {
      team->waiting = 0;
      team->meetings++;
      g_cond_broadcast (&team->crew->changed);
      return TRUE;
    }
  while (team->meetings == meeting && !(can_fail && reason_of (team) != NULL))
    g_cond_wait (&team->crew->changed, &team->crew->mutex);
  return team->meetings != meeting;
}

/* Whether all ranks have posted the same collective. The mutex is held. */
static gboolean
posts_agree (const Team *team)
{
  const Post *first = team->posts;

  for (const Post *post = first + 1; post < first + team->ranks; post++)
    if (strcmp (post->name, first->name) != 0 || post->count != first->count
        || post->dtype != first->dtype)
      return FALSE;
  return TRUE;
}

/* Begins a collective. Afterwards every rank's post may be read until the last `meet_again`. */
static gboolean
begin (ExecComm *comm, const Post *post, GError **error)
{
  Team *team = ((ThreadsComm *)comm)->team;
  gboolean ok = FALSE;

  g_mutex_lock (&team->crew->mutex);
  if (reason_of (team) == NULL)
    {
      team->posts[comm->rank] = *post;
      if (meet (team, TRUE))
        {
          ok = posts_agree (team);
          if (!ok)
            give_reason (team, &team->crew->reason, comm->rank,
                         "failed: the ranks do not call the same collective");
        }
    }
  if (!ok)
    g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND, reason_of (team));
  g_mutex_unlock (&team->crew->mutex);
  return ok;
}

/* A further meeting of a collective: what ranks wrote before it can be read after it. */
static void
meet_again (ExecComm *comm)
{
  Team *team = ((ThreadsComm *)comm)->team;

  g_mutex_lock (&team->crew->mutex);
  meet (team, FALSE);
  g_mutex_unlock (&team->crew->mutex);
}

static gboolean
threads_all_gather (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                    void *stream, GError **error)
{
  const Team *team = ((ThreadsComm *)comm)->team;
  Post post = { .name = "all_gather", .in = in, .count = count, .dtype = dtype };
  guint64 bytes = bytes_of (&post, count);

  if (!begin (comm, &post, error))
    return FALSE;
  for (guint rank = 0; rank < comm->ranks; rank++)
    {
      guint8 *place = (guint8 *)out + rank * bytes;

      if (place != posted (team, rank))
        memcpy (place, posted (team, rank), bytes);
    }
  meet_again (comm);
  return TRUE;
}

/* out = the fold, such as the sum, of elements `from` to `from + count` of every rank's post. */
static void
fold_posts (const ExecComm *comm, ExecCommFold fold, void *out, guint64 from, guint64 count)
{
  const Team *team = ((const ThreadsComm *)comm)->team;
  const Post *post = &team->posts[comm->rank];
  g_autofree const void **in = g_new (const void *, comm->ranks);

  for (guint rank = 0; rank < comm->ranks; rank++)
    in[rank] = posted (team, rank) + bytes_of (post, from);
  fold (out, in, comm->ranks, count, post->dtype);
}

static gboolean
threads_reduce_scatter (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                        void *stream, GError **error)
{
  Post post = { .name = "reduce_scatter", .in = in, .count = count, .dtype = dtype };

  if (!begin (comm, &post, error))
    return FALSE;
  fold_posts (comm, exec_comm_sum, out, comm->rank * count, count);
  meet_again (comm);
  return TRUE;
}

static gboolean
threads_all_to_all (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                    void *stream, GError **error)
{
  const Team *team = ((ThreadsComm *)comm)->team;
  Post post = { .name = "all_to_all", .in = in, .count = count, .dtype = dtype };
  guint64 bytes = bytes_of (&post, count);

  if (!begin (comm, &post, error))
    return FALSE;
  for (guint rank = 0; rank < comm->ranks; rank++)
    memcpy ((guint8 *)out + rank * bytes, posted (team, rank) + comm->rank * bytes, bytes);
  meet_again (comm);
  return TRUE;
}

static gboolean
threads_exchange (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
                  guint distance, void *stream, GError **error)
{
  const Team *team = ((ThreadsComm *)comm)->team;
  Post post = { .name = "exchange", .in = in, .count = count, .dtype = dtype };

  if (!begin (comm, &post, error))
    return FALSE;
  memcpy (out, posted (team, exec_comm_behind (comm, distance)), bytes_of (&post, count));
  meet_again (comm);
  return TRUE;
}

/* First element of a rank's slice when `count` elements are divided among the ranks. */
static guint64
slice_start (const ExecComm *comm, guint rank, guint64 count)
{
  return count / comm->ranks * rank + MIN (rank, count % comm->ranks);
}

/* Each rank folds one slice of all posts in its own buffer, then copies the other slices from the
 * other ranks. */
static gboolean
fold_everywhere (ExecComm *comm, const char *name, ExecCommFold fold, void *buf, guint64 count,
                 PlanDtype dtype, GError **error)
{
  const Team *team = ((ThreadsComm *)comm)->team;
  Post post = { .name = name, .in = buf, .count = count, .dtype = dtype };
  guint64 from = slice_start (comm, comm->rank, count);

  if (!begin (comm, &post, error))
    return FALSE;
  fold_posts (comm, fold, (guint8 *)buf + bytes_of (&post, from), from,
              slice_start (comm, comm->rank + 1, count) - from);
  meet_again (comm);
  for (guint rank = 0; rank < comm->ranks; rank++)
    {
      guint64 start = slice_start (comm, rank, count);
      guint64 offset = bytes_of (&post, start);

      if (rank != comm->rank)
        memcpy ((guint8 *)buf + offset, posted (team, rank) + offset,
                bytes_of (&post, slice_start (comm, rank + 1, count) - start));
    }
  meet_again (comm);
  return TRUE;
}

static gboolean
threads_all_reduce (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                    GError **error)
{
  return fold_everywhere (comm, "all_reduce", exec_comm_sum, buf, count, dtype, error);
}

static gboolean
threads_all_reduce_max (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                        GError **error)
{
  return fold_everywhere (comm, "all_reduce_max", exec_comm_max, buf, count, dtype, error);
}

static gboolean
threads_barrier (ExecComm *comm, GError **error)
{
  Post post = { .name = "barrier", .dtype = PLAN_DTYPE_U8 };

  if (!begin (comm, &post, error))
    return FALSE;
  meet_again (comm);
  return TRUE;
}

/* Waits until the letter is posted; FALSE when the team fails meanwhile. The mutex is held. */
static gboolean
await_letter (Team *team, const Letter *letter)
{
  while (letter->state != LETTER_POSTED && reason_of (team) == NULL)
    g_cond_wait (&team->crew->changed, &team->crew->mutex);
  return letter->state == LETTER_POSTED && reason_of (team) == NULL;
}

/* Waits for a letter and copies it to `out`. The mutex is held, except during the copy. */
static gboolean
take_letter (ExecComm *comm, Letter *letter, void *out, const Post *wanted)
{
  Team *team = ((ThreadsComm *)comm)->team;
  const gboolean is_there = await_letter (team, letter);
  const gboolean is_meant
      = is_there && letter->post.count == wanted->count && letter->post.dtype == wanted->dtype;

  if (is_there && !is_meant)
    give_reason (team, &team->crew->reason, comm->rank,
                 "failed: another rank sends something else than this one takes");
  if (!is_meant)
    return FALSE;
  letter->state = LETTER_READ;
  g_mutex_unlock (&team->crew->mutex);
  memcpy (out, letter->post.in, bytes_of (wanted, wanted->count));
  g_mutex_lock (&team->crew->mutex);
  letter->state = LETTER_NONE;
  g_cond_broadcast (&team->crew->changed);
  return TRUE;
}

/* Waits until the receiver has copied a letter, because the buffer must not change before. The
 * mutex is held. */
static gboolean
await_taken (Team *team, const Letter *letter)
{
  while (letter->state == LETTER_READ
         || (letter->state == LETTER_POSTED && reason_of (team) == NULL))
    g_cond_wait (&team->crew->changed, &team->crew->mutex);
  return letter->state == LETTER_NONE;
}

static gboolean
threads_trade (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
               guint peer, void *stream, GError **error)
{
  Team *team = ((ThreadsComm *)comm)->team;
  const Post post = { .name = "trade", .in = in, .count = count, .dtype = dtype };
  Letter *sent = &team->letters[comm->rank * comm->ranks + peer];
  Letter *taken = &team->letters[peer * comm->ranks + comm->rank];
  gboolean ok;

  g_mutex_lock (&team->crew->mutex);
  ok = reason_of (team) == NULL;
  if (ok && in != NULL)
    {
      *sent = (Letter){ .post = post, .state = LETTER_POSTED };
      g_cond_broadcast (&team->crew->changed);
    }
  ok = ok && (out == NULL || take_letter (comm, taken, out, &post));
  ok = (in == NULL || await_taken (team, sent)) && ok;
  if (!ok)
    g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND, reason_of (team));
  g_mutex_unlock (&team->crew->mutex);
  return ok;
}

/* Checks that no rank has failed. */
static gboolean
threads_check (ExecComm *comm, GError **error)
{
  Crew *crew = ((ThreadsComm *)comm)->team->crew;
  gboolean ok;

  g_mutex_lock (&crew->mutex);
  ok = crew->reason == NULL;
  if (!ok)
    g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND, crew->reason);
  g_mutex_unlock (&crew->mutex);
  return ok;
}

static void
threads_abort (ExecComm *comm, const char *why)
{
  Team *team = ((ThreadsComm *)comm)->team;
  g_autofree char *text = g_strconcat ("failed: ", why, NULL);

  g_mutex_lock (&team->crew->mutex);
  give_reason (team, &team->crew->reason, comm->rank, text);
  g_mutex_unlock (&team->crew->mutex);
}

static void
threads_close (ExecComm *comm)
{
  Team *team = ((ThreadsComm *)comm)->team;
  gboolean is_last;

  exec_comm_close_groups (comm);
  g_mutex_lock (&team->crew->mutex);
  is_last = --team->open == 0;
  give_reason (team, &team->closed, comm->rank, "has closed its communicator");
  g_mutex_unlock (&team->crew->mutex);
  if (is_last)
    team_free (team);
  g_free (comm);
}

static ExecComm *threads_group (ExecComm *comm, guint size, guint stride, GError **error);

static const ExecCommOps threads_ops = {
  .name = "threads",
  .summary = "ranks as threads of one process",
  .all_gather = threads_all_gather,
  .reduce_scatter = threads_reduce_scatter,
  .all_to_all = threads_all_to_all,
  .exchange = threads_exchange,
  .all_reduce = threads_all_reduce,
  .all_reduce_max = threads_all_reduce_max,
  .barrier = threads_barrier,
  .trade = threads_trade,
  .check = threads_check,
  .group = threads_group,
  .abort = threads_abort,
  .close = threads_close,
};

static ExecComm *
comm_new (Team *team, guint rank)
{
  ThreadsComm *self = g_new0 (ThreadsComm, 1);

  self->comm = (ExecComm){ .ops = &threads_ops, .rank = rank, .ranks = team->ranks };
  self->team = team;
  return &self->comm;
}

/* The first rank of each group makes its team before the first meeting; the other members take it
 * between the meetings. */
static ExecComm *
threads_group (ExecComm *comm, guint size, guint stride, GError **error)
{
  Team *team = ((ThreadsComm *)comm)->team, *made;
  Post post = { .name = "group", .count = (guint64)size << 32 | stride, .dtype = PLAN_DTYPE_U8 };
  guint member = comm->rank / stride % size, first = comm->rank - member * stride;

  if (!begin (comm, &post, error))
    return NULL;
  if (member == 0)
    team->groups[comm->rank] = team_new (team->crew, size);
  meet_again (comm);
  made = team->groups[first];
  meet_again (comm);
  return comm_new (made, member);
}

gboolean
exec_comm_threads_open (guint ranks, ExecComm **out_comms, GError **error)
{
  Crew *crew;
  Team *team;

  if (ranks == 0)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID, "a run needs at least one rank");
      return FALSE;
    }
  crew = g_new0 (Crew, 1);
  g_mutex_init (&crew->mutex);
  g_cond_init (&crew->changed);
  g_atomic_ref_count_init (&crew->teams); /* our own reference, until the team holds one */
  team = team_new (crew, ranks);
  crew_unref (crew);
  for (guint rank = 0; rank < ranks; rank++)
    out_comms[rank] = comm_new (team, rank);
  return TRUE;
}
