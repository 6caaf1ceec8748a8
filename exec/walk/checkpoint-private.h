/* The names that writing and reading a checkpoint share. */
#pragma once
#include "exec/walk/checkpoint.h"
#include <glib.h>
G_BEGIN_DECLS

#define EXEC_CHECKPOINT_MANIFEST "manifest"
#define EXEC_CHECKPOINT_GROUP "checkpoint"
#define EXEC_CHECKPOINT_FILES "files"
#define EXEC_CHECKPOINT_RUN "run"
#define EXEC_CHECKPOINT_VERSION 2
#define EXEC_CHECKPOINT_LOCK "lock"

/* Whether a folder's name is exactly step-STEP.NUMBER, as checkpoints are named. */
gboolean exec_checkpoint_is_name (const char *name);

/* STATE/PARAMETER/LAYER. The tensor of a contiguous piece has this name and /FIRST behind it, that
 * of a piece in runs has /FIRST:STRIDE. The caller frees. */
char *exec_checkpoint_name (ExecState state, PlanTensorRole role, gint64 layer);

G_END_DECLS
