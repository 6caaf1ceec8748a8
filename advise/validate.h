/* AdviseValidation: measured runs beside what is predicted for them. */
#pragma once
#include "planner/case/case.h"
#include "planner/runs/run-table.h"
#include "sim/cost/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* The source of runs of this program's own. */
#define ADVISE_OWN_RUNS "fsdplan run"

/* A row and its prediction. Numbers of groups and configurations are those of PlanSample, of
 * questions that of PlanCandidate. */
typedef struct
{
  PlanRunRow row;
  PlanCase *of;          /* NULL where the row was skipped */
  gboolean is_selected;  /* asked for: predicted and scored */
  gboolean is_predicted; /* the next two are there */
  gboolean fits;
  double predicted[PLAN_N_RUN_QUANTITIES];
  double naive[PLAN_N_RUN_QUANTITIES]; /* by rules of thumb; 0: none */
  double exposed;                      /* share of the step */
  guint64 device, resting;             /* predicted bytes: at the most, and between steps */
  SimErrorRange error_range;           /* of the time; below 0: not known */
  double p_fits;                       /* below 0: not known */
  guint group, configuration, question;
} AdviseRun;

/* Whose run it is; the caller frees. */
char *advise_run_source (const AdviseRun *run);

typedef struct
{
  char *origin;
  char *db; /* the store they are from, for what was timed on this machine; NULL: the user's */
  PlanRunTable *table;
  GArray *runs;     /* AdviseRun, in the order of the table */
  GPtrArray *wrong; /* char *, a line each that could not be read */
} AdviseValidation;

void advise_validation_clear (AdviseValidation *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseValidation, advise_validation_clear)

/* Reads a table of runs; "-" is stdin, NULL the shipped one. */
gboolean advise_validation_read (const char *path, AdviseValidation *out_self, GError **error);

/* Reads the runs that were imported into the store, and those that "fsdplan run" did. */
gboolean advise_validation_read_store (const char *db, AdviseValidation *out_self, GError **error);

/* "COLUMN=VALUE" unselects the rows of another value, "COLUMN" those that say 0, no, none or
 * nothing there. */
gboolean advise_validation_where (AdviseValidation *self, const char *text, GError **error);

/* Unselects the rows of other sources. */
void advise_validation_of_source (AdviseValidation *self, const char *source);

/* Predicts the selected rows on all processors; `adjustments` NULL: none. Rows that break
 * a rule are skipped with it. */
void advise_validation_predict (AdviseValidation *self, const SimAdjustments *adjustments);

G_END_DECLS
