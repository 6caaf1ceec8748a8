/* PlanWorkspaces: memory that cuDNN said it wants for causal attention on GPUs of one architecture,
 * by shape. What is found there, lowering takes in place of its own rule
 * (planner/schedule/scratch.h). */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_PASS_FORWARD,
  PLAN_PASS_BACKWARD,
  PLAN_PASS_DETERMINISTIC, /* backwards, without atomics */
  PLAN_N_PASSES
} PlanPass;

#define PLAN_N_WORKSPACE_DIMS 5

typedef struct
{
  gint64 dims[PLAN_N_WORKSPACE_DIMS]; /* batch, seq, heads, kv_heads, head_dim, as attention ops */
  PlanDtype dtype;
  PlanPass pass;
  guint version; /* of cuDNN, as it numbers itself: 91900 */
  guint64 bytes; /* aligned to 256; its own, and what is between a graph's operations */
} PlanWorkspace;

const char *plan_pass_name (PlanPass pass);

/* "backward"; the error names them all. */
gboolean plan_pass_parse (const char *name, PlanPass *out_pass, GError **error);

/* "9.19.0"; the caller frees. */
char *plan_workspace_print_version (guint version);

typedef struct _PlanWorkspaces PlanWorkspaces;

PlanWorkspaces *plan_workspaces_new (void);
void plan_workspaces_free (PlanWorkspaces *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanWorkspaces, plan_workspaces_free)

/* Of one shape the newest version counts, and of that what was added last. */
void plan_workspaces_add (PlanWorkspaces *self, const PlanWorkspace *row);

guint plan_workspaces_n_rows (const PlanWorkspaces *self);

/* NULL: nobody said it, or `self` is NULL. */
const PlanWorkspace *plan_workspaces_find (const PlanWorkspaces *self, const gint64 *dims,
                                           PlanDtype dtype, PlanPass pass);

G_END_DECLS
