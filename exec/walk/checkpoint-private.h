/* What writing and reading a checkpoint share: names. */
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

/* step-STEP.NUMBER, and nothing else. */
gboolean exec_checkpoint_is_name (const char *name);

/* STATE/PARAMETER/LAYER, and with /FIRST the name of a piece, or with /FIRST:STRIDE that of one
 * whose rows lie apart; the caller frees. */
char *exec_checkpoint_name (ExecState state, PlanTensorRole role, gint64 layer);

G_END_DECLS
