/* ExecCheckpoint: the state of a run between two steps, in a folder.
 *
 * Every rank writes a file with the state it owns, as pieces of parameters, so that any other
 * number of ranks can read what it needs. The manifest is replaced last, by one rename: a run
 * killed at any moment leaves either the old checkpoint or the new one. Files are synced before a
 * manifest names them.
 *
 * The folder of a run holds one folder for each checkpoint, which has a manifest of its own and can
 * be opened by itself. The manifest of the run's folder lists the checkpoints that are kept and
 * says which is the newest. Files that no manifest lists were not written here and are left
 * alone. */
#pragma once
#include "exec/comm.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  EXEC_STATE_MAIN,
  EXEC_STATE_EXP_AVG, /* Adam's first moment, or the momentum of SGD */
  EXEC_STATE_EXP_AVG_SQ,
  EXEC_STATE_SCALES,  /* delayed fp8 scaling: the scales of the sites of a weight's products */
  EXEC_STATE_HISTORY, /* and the largest magnitudes of their last steps, site after site */
  EXEC_N_STATES
} ExecState;

/* Elements of one parameter that are contiguous on one rank. In the whole parameter they are
 * contiguous from `first` on, or lie in runs of `run` elements, of which each begins `stride`
 * elements after the one before: the columns that a tensor-parallel rank has of a matrix. */
typedef struct
{
  ExecState state;
  PlanTensorRole role;
  gint64 layer;
  guint64 first, count;
  PlanDtype dtype;
  const void *data;
  gboolean is_on_host; /* the host can read `data` directly, even where there is a `fetch` */
  guint64 run, stride; /* 0: contiguous in the parameter */
} ExecPiece;

#define EXEC_CHECKPOINT_KEEP 2

typedef struct
{
  const char *folder;
  guint keep;       /* number of checkpoints to keep, including this one */
  GPtrArray *names; /* of this run's checkpoints, the newest last; only rank 0 changes it */
  gint64 step;      /* steps done so far */
  gint64 tokens;    /* tokens trained on so far */
  const PlanModel *model;
  const char *const *settings; /* "NAME=VALUE" settings of the run; may be NULL */
} ExecCheckpointHead;

/* Makes the folder where there is none, and checks before the run that it can be written to. A
 * folder whose manifest is not a checkpoint's is refused. */
gboolean exec_checkpoint_prepare (const char *folder, GError **error);

/* Locks the folder against other runs until the file descriptor is closed; -1 where another run
 * holds the lock. */
int exec_checkpoint_lock (const char *folder, GError **error);

/* Copies bytes of a piece's data from the device to where the host can read them. */
typedef gboolean (*ExecFetch) (gpointer user_data, void *out, const void *from, guint64 bytes,
                               GError **error);

/* A checkpoint that is being written. */
typedef struct _ExecSaving ExecSaving;

/* Begins to write a checkpoint. All ranks call it, each with the pieces that it owns. Without
 * `fetch` the host can read their data. With `behind` the data is copied, where there is memory for
 * that, and a thread writes the copy while training goes on; otherwise all is written when this
 * returns. The head must outlive the saving. */
ExecSaving *exec_checkpoint_begin (const ExecCheckpointHead *head, const ExecPiece *pieces, guint n,
                                   ExecFetch fetch, gpointer user_data, gboolean behind,
                                   ExecComm *comm, GError **error);

/* Whether this rank's file is complete, or writing it has failed. */
gboolean exec_saving_is_written (ExecSaving *self);

/* Waits for what is not written yet, publishes the checkpoint once all ranks' files are complete,
 * removes checkpoints that are no longer kept, and frees `self`. All ranks call it. */
gboolean exec_saving_finish (ExecSaving *self, ExecComm *comm, GError **error);

/* Waits for the thread and frees, without publishing the checkpoint. `self` may be NULL. */
void exec_saving_free (ExecSaving *self);

typedef struct _ExecCheckpoint ExecCheckpoint;

/* Opens a checkpoint. Every file is checked against the manifest, and the model against `model`;
 * NULL accepts any model. */
ExecCheckpoint *exec_checkpoint_open (const char *folder, const PlanModel *model, GError **error);
void exec_checkpoint_free (ExecCheckpoint *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecCheckpoint, exec_checkpoint_free)

gint64 exec_checkpoint_step (const ExecCheckpoint *self);
gint64 exec_checkpoint_tokens (const ExecCheckpoint *self);

/* The model that the checkpoint is of; the caller frees. */
PlanModel *exec_checkpoint_model (const ExecCheckpoint *self, GError **error);

/* A setting of the run that wrote the checkpoint; NULL where it has none of this name. */
const char *exec_checkpoint_setting (const ExecCheckpoint *self, const char *name);

/* The names of the checkpoints that the earlier run left in `folder`, the newest last; none where
 * it wrote to another folder. `self` may be NULL; the caller frees. */
GPtrArray *exec_checkpoint_names (const ExecCheckpoint *self, const char *folder);

/* Reads `count` elements of a parameter's state from element `first` on. CORRUPT when some are
 * missing. */
gboolean exec_checkpoint_read (const ExecCheckpoint *self, ExecState state, PlanTensorRole role,
                               gint64 layer, guint64 first, guint64 count, float *out,
                               GError **error);

G_END_DECLS
