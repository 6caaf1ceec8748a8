/* CliValidation: measured runs beside what is predicted for them. */
#pragma once
#include "planner/run-table.h"
#include "sim/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* The source of runs of this program's own. */
#define CLI_OWN_RUNS "fsdplan run"

/* A row and its prediction. Numbers of groups and configurations are those of PlanSample, of
 * questions that of PlanCandidate. */
typedef struct
{
  PlanRunRow row;
  Plan plan;             /* resolved; without meaning where the row was skipped */
  gboolean is_selected;  /* asked for: predicted and scored */
  gboolean is_predicted; /* the next two are there */
  gboolean fits;
  double predicted[PLAN_N_RUN_QUANTITIES];
  double naive[PLAN_N_RUN_QUANTITIES]; /* by rules of thumb; 0: none */
  double exposed;                      /* share of the step */
  guint64 device, resting;             /* predicted bytes: at the most, and between steps */
  SimDoubt doubt;                      /* of the time; below 0: not known */
  double p_fits;                       /* below 0: not known */
  guint group, configuration, question;
} CliRun;

/* Whose run it is; the caller frees. */
char *cli_run_source (const CliRun *run);

typedef struct
{
  char *origin;
  char *db; /* the store they are from, for what was timed on this machine; NULL: the user's */
  PlanRunTable *table;
  GArray *runs;     /* CliRun, in the order of the table */
  GPtrArray *wrong; /* char *, a line each that could not be read */
} CliValidation;

void cli_validation_clear (CliValidation *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliValidation, cli_validation_clear)

/* Reads a table of runs; "-" is stdin, NULL the shipped one. */
gboolean cli_validation_read (const char *path, CliValidation *out_self, GError **error);

/* Reads the runs that were imported into the store, and those that "fsdplan run" did. */
gboolean cli_validation_read_store (const char *db, CliValidation *out_self, GError **error);

/* "COLUMN=VALUE": unselects the rows of another value. */
gboolean cli_validation_where (CliValidation *self, const char *text, GError **error);

/* Unselects the rows of other sources. */
void cli_validation_of_source (CliValidation *self, const char *source);

/* Predicts the selected rows on all processors; `adjustments` NULL: none. Rows that break
 * a rule are skipped with it. */
void cli_validation_predict (CliValidation *self, const SimAdjustments *adjustments);

G_END_DECLS
