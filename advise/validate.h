/* AdviseValidation: measured runs beside their predictions. */
#pragma once
#include "planner/case/case.h"
#include "planner/runs/run-table.h"
#include "sim/cost/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* The source of this program's own runs. */
#define ADVISE_OWN_RUNS "fsdplan run"

/* A row and its prediction. Groups and configurations are numbered as in PlanSample, questions as
 * in PlanCandidate. */
typedef struct
{
  PlanRunRow row;
  PlanCase *of;          /* NULL where the row was skipped */
  gboolean is_selected;  /* asked for: to be predicted and scored */
  gboolean is_predicted; /* `fits` and `predicted` are valid */
  gboolean fits;
  double predicted[PLAN_N_RUN_QUANTITIES];
  double naive[PLAN_N_RUN_QUANTITIES]; /* by rules of thumb; 0: none */
  double exposed;                      /* share of the step that is exposed communication */
  guint64 device, resting;             /* predicted bytes at the peak, and between steps */
  SimErrorRange error_range;           /* of the time; below 0: unknown */
  double p_fits;                       /* below 0: unknown */
  guint group, configuration, question;
} AdviseRun;

/* The source of a run; the caller frees. */
char *advise_run_source (const AdviseRun *run);

/* The source as a name that a set of parameters can hold: letters, digits and . _ + - only. */
char *advise_run_source_word (const AdviseRun *run);

typedef struct
{
  char *origin;
  char *db; /* the store that the runs are from, which may have timings of this machine; NULL: the
               user's */
  PlanRunTable *table;
  GArray *runs;     /* AdviseRun: in the order of the table */
  GPtrArray *wrong; /* char *: one line per row that could not be read */
} AdviseValidation;

void advise_validation_clear (AdviseValidation *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseValidation, advise_validation_clear)

/* Reads a table of runs; "-" is stdin, NULL the shipped table. */
gboolean advise_validation_read (const char *path, AdviseValidation *out_self, GError **error);

/* Reads the runs that were imported into the store, and those of "fsdplan run". */
gboolean advise_validation_read_store (const char *db, AdviseValidation *out_self, GError **error);

/* Unselects rows: "COLUMN=VALUE" those with another value, "COLUMN" those with 0, no, none or
 * nothing. FALSE if there is no such column, or no row is left. */
gboolean advise_validation_where (AdviseValidation *self, const char *text, GError **error);

/* Predicts the selected rows on all processors; `adjustments` may be NULL. Rows that break a rule
 * are skipped, and the rule is named. */
void advise_validation_predict (AdviseValidation *self, const SimAdjustments *adjustments);

G_END_DECLS
