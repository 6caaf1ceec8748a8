/* ExecCheckpoint: the state of a run between two steps, in a folder.
 *
 * Every rank writes its own part of it, piece by piece of each parameter, so that any other number
 * of ranks finds what it needs. The manifest is replaced last and at once: whoever is killed at any
 * moment leaves the old checkpoint or the new one. Files are synced before they are named.
 *
 * Each checkpoint is a folder in that one, with a manifest of its own, so that it can be opened by
 * itself; the manifest of all names the newest, and those kept. What no manifest lists is not ours,
 * and stays. */
#pragma once
#include "exec/comm.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  EXEC_STATE_MAIN,
  EXEC_STATE_EXP_AVG, /* and the momentum of SGD */
  EXEC_STATE_EXP_AVG_SQ,
  EXEC_STATE_SCALES,  /* of the sites of a weight's products */
  EXEC_STATE_HISTORY, /* and the largest magnitudes of their last steps, one site after the other */
  EXEC_N_STATES
} ExecState;

/* Elements of one parameter that lie together on one rank: from `first` on, or in runs of `run`,
 * each `stride` elements of the parameter behind the one before. */
typedef struct
{
  ExecState state;
  PlanTensorRole role;
  gint64 layer;
  guint64 first, count;
  PlanDtype dtype;
  const void *data;
  gboolean is_here;    /* the host can read it, whatever `fetch` is */
  guint64 run, stride; /* 0: all lie together in the parameter, too */
} ExecPiece;

#define EXEC_CHECKPOINT_KEEP 2

typedef struct
{
  const char *folder;
  guint keep;       /* checkpoints, this one too */
  GPtrArray *names; /* of those of this run, the newest last: changed by rank 0 */
  gint64 step;      /* done so far */
  gint64 tokens;    /* seen so far */
  const PlanModel *model;
  const char *const *settings; /* "NAME=VALUE" of the run; may be NULL */
} ExecCheckpointHead;

/* Makes the folder where there is none; whether it can be written is better known before a run. A
 * manifest there that is no checkpoint's is refused. */
gboolean exec_checkpoint_prepare (const char *folder, GError **error);

/* No other run may write there until the file is closed; -1 where one does. */
int exec_checkpoint_lock (const char *folder, GError **error);

/* Copies some bytes of a piece's data to where the host can read them. */
typedef gboolean (*ExecFetch) (gpointer user_data, void *out, const void *from, guint64 bytes,
                               GError **error);

/* A checkpoint that is being written. */
typedef struct _ExecSaving ExecSaving;

/* All ranks call it; each brings the pieces that it owns. Without `fetch` the host can read their
 * data. `behind`: they are copied, where there is memory for that, and written by a thread while
 * they may change; else they are written when this returns. The head must outlive the saving. */
ExecSaving *exec_checkpoint_begin (const ExecCheckpointHead *head, const ExecPiece *pieces, guint n,
                                   ExecFetch fetch, gpointer user_data, gboolean behind,
                                   ExecComm *comm, GError **error);

/* Whether this rank's part is written, or failed to be. */
gboolean exec_saving_is_written (ExecSaving *self);

/* All ranks call it: waits for what is not written yet, and names the checkpoint once all have
 * their parts. Those that are no longer kept are removed. Frees. */
gboolean exec_saving_finish (ExecSaving *self, ExecComm *comm, GError **error);

/* Waits and frees: a checkpoint without a name. NULL is none. */
void exec_saving_free (ExecSaving *self);

typedef struct _ExecCheckpoint ExecCheckpoint;

/* Checks every file against the manifest, and that it is of that model; NULL takes any. */
ExecCheckpoint *exec_checkpoint_open (const char *folder, const PlanModel *model, GError **error);
void exec_checkpoint_free (ExecCheckpoint *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecCheckpoint, exec_checkpoint_free)

gint64 exec_checkpoint_step (const ExecCheckpoint *self);
gint64 exec_checkpoint_tokens (const ExecCheckpoint *self);

/* The model that it is of; the caller frees. */
PlanModel *exec_checkpoint_model (const ExecCheckpoint *self, GError **error);

/* A setting of the run that wrote it, or NULL. */
const char *exec_checkpoint_setting (const ExecCheckpoint *self, const char *name);

/* Names of the checkpoints that the run before left in that folder, the newest last; none where it
 * wrote to another. `self` may be NULL; the caller frees. */
GPtrArray *exec_checkpoint_names (const ExecCheckpoint *self, const char *folder);

/* `count` elements of a parameter's state from element `first` on; CORRUPT when some are missing.
 */
gboolean exec_checkpoint_read (const ExecCheckpoint *self, ExecState state, PlanTensorRole role,
                               gint64 layer, guint64 first, guint64 count, float *out,
                               GError **error);

G_END_DECLS
