/* PlanWorkspaces: the memory that cuDNN says it needs for causal attention on GPUs of one
 * architecture, by shape. Lowering uses it in place of its own rule
 * (planner/schedule/scratch.h). */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_PASS_FORWARD,
  PLAN_PASS_BACKWARD,
  PLAN_PASS_DETERMINISTIC, /* backward, without atomics */
  PLAN_N_PASSES
} PlanPass;

#define PLAN_N_WORKSPACE_DIMS 5

typedef struct
{
  gint64 dims[PLAN_N_WORKSPACE_DIMS]; /* batch, seq, heads, kv_heads, head_dim as of attention */
  PlanDtype dtype;
  PlanPass pass;
  guint version; /* of cuDNN, in its own form: 91900 */
  guint64 bytes; /* aligned to 256: workspace, and values within cuDNN's graph */
} PlanWorkspace;

const char *plan_pass_name (PlanPass pass);

/* Parses a pass, such as "backward"; the error names all of them. */
gboolean plan_pass_parse (const char *name, PlanPass *out_pass, GError **error);

/* A version as text, "9.19.0"; the caller frees. */
char *plan_workspace_print_version (guint version);

typedef struct _PlanWorkspaces PlanWorkspaces;

PlanWorkspaces *plan_workspaces_new (void);
void plan_workspaces_free (PlanWorkspaces *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanWorkspaces, plan_workspaces_free)

/* Adds a row. Of rows with one shape the newest version counts, and among equal versions the
 * last. */
void plan_workspaces_add (PlanWorkspaces *self, const PlanWorkspace *row);

guint plan_workspaces_n_rows (const PlanWorkspaces *self);

/* The row of a shape. NULL: there is none, or `self` is NULL. */
const PlanWorkspace *plan_workspaces_find (const PlanWorkspaces *self, const gint64 *dims,
                                           PlanDtype dtype, PlanPass pass);

G_END_DECLS
