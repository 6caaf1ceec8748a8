/* What tests of whole runs on the fake device share: a plan on a small model, run there and by the
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

/* Resets the device, and puts a model, if one is named, on `ranks` GPUs of a shipped kind. */
void case_open_on (Case *c, const char *model, const char *gpu, guint ranks);
void case_open (Case *c, const char *model, guint ranks);
void case_set_job (Case *c, guint seed);

/* After case_open: sets a plan by its text; sets some of its fields otherwise; adds evaluations
 * after each step. */
void case_set_plan (Case *c, const char *fields);
void case_change (Case *c, const char *fields);
void case_evaluates (Case *c);

/* Opens a small model with a plan by its text; with heads of `head_dim` elements. */
void case_init_heads (Case *c, guint ranks, guint head_dim, const char *fields);
void case_init (Case *c, guint ranks, const char *fields);

void case_clear_results (Case *c);
void case_free (Case *c);

void case_remove_folder (const char *path); /* with all in it */

/* Everything that was taken has been given back, and nothing went wrong on the device. */
void case_clear (Case *c, const char *what);

gboolean case_run (Case *c, GError **error);
void case_must_run (Case *c, const char *what);

/* The same by the CPU's kernels. */
void run_on_cpu (const Case *c, const char *what, ExecResult results[MAX_RANKS]);

double distance (double a, double b);

/* Mean distance of the weights, as a share of what a step may move them by. */
double weights_distance (const Case *c, const ExecResult *a, const ExecResult *b);
void assert_near (const Case *c, const char *what, const ExecResult *found,
                  const ExecResult *expected);

/* Runs on both. */
void check_against_cpu (Case *c, const char *what);

/* Runs, and takes what was predicted: by category, at the peak, and of one allocation. */
void case_check_bytes (Case *c, const char *what);

/* Losses and norms of the first rank are the same bits. */
void assert_equal_losses (const Case *a, const Case *b, const char *what);

/* Lines of the log that begin with these words. */
guint count_logged (const char *words);

/* The run fails with that; clears. */
void assert_refused (Case *c, PlanErrorCode code, const char *message);

G_END_DECLS
