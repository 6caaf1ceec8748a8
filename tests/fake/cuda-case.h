/* Shared by tests of whole runs on the fake device: a plan on a small model is run there and by the
 * CPU's kernels. */
#pragma once
#include "exec/cuda/device-cuda.h"
#include "exec/walk/exec.h"
#include "planner/base/error.h"
#include "planner/case/case.h"
#include <check.h>
#include <glib.h>
G_BEGIN_DECLS

#define STEPS 2
#define MAX_RANKS 4

typedef struct
{
  PlanModel *model;
  PlanCluster *gpus, *processors;
  PlanCase *of, *eval_of; /* on the GPUs; NULL: none */
  guint ranks;
  ExecJob job; /* on the GPU */
  ExecResult results[MAX_RANKS];
} Case;

/* Resets the device, and puts a model (NULL: none) on `ranks` GPUs of a shipped kind. */
void case_open_on (Case *c, const char *model, const char *gpu, guint ranks);
void case_open (Case *c, const char *model, guint ranks);
void case_set_job (Case *c, guint seed);

/* After case_open: case_set_plan sets a plan by its text, case_change sets some of its fields, and
 * case_evaluates adds evaluations after each step. */
void case_set_plan (Case *c, const char *fields);
void case_change (Case *c, const char *fields);
void case_evaluates (Case *c);

/* Opens a small model with a plan by its text; case_init_heads makes heads of `head_dim`
 * elements. */
void case_init_heads (Case *c, guint ranks, guint head_dim, const char *fields);
void case_init (Case *c, guint ranks, const char *fields);

void case_clear_results (Case *c);
void case_free (Case *c);

void case_remove_folder (const char *path); /* with its files */

/* Closes the case, and checks that all memory has been freed and that nothing went wrong on the
 * device. */
void case_clear (Case *c, const char *what);

gboolean case_run (Case *c, GError **error);
void case_must_run (Case *c, const char *what);

/* Runs the same plan by the CPU's kernels. */
void run_on_cpu (const Case *c, const char *what, ExecResult results[MAX_RANKS]);

double distance (double a, double b);

/* Mean distance of the weights, as a share of what a step may move them by. */
double weights_distance (const Case *c, const ExecResult *a, const ExecResult *b);
void assert_near (const Case *c, const char *what, const ExecResult *found,
                  const ExecResult *expected);

/* Runs on both devices, and checks that the results are near. */
void check_against_cpu (Case *c, const char *what);

/* Checks that a run that is done allocated exactly the predicted bytes: by category, at the peak,
 * and in one allocation. */
void case_check_bytes (const Case *c, const char *what);

/* Checks that losses and norms of the first rank have the same bits. */
void assert_equal_losses (const Case *a, const Case *b, const char *what);

/* Counts lines of the fake device's log that begin with these words. */
guint count_logged (const char *words);

/* Checks that the run fails with that error, and closes the case. */
void assert_refused (Case *c, PlanErrorCode code, const char *message);

G_END_DECLS
