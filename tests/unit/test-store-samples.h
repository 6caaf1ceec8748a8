/* What the tests of the store share: a folder per test, samples of all that is stored, and looks at
 * the file behind the store's back. */
#pragma once
#include "db/runs.h"
#include "db/traces.h"
#include "planner/base/error.h"
#include <glib.h>
G_BEGIN_DECLS

/* Of the test that runs: an empty folder, and a file in it. */
extern char *folder;
extern char *store_file;
void store_setup (void);
void store_teardown (void);
void store_remove_tree (const char *path);

/* Fails the test on an error, which is looked at after the call; `what` names that. */
void must (gboolean ok, GError *const *error, const char *what);

/* The error has that code, and says that. */
void ck_assert_refused (const GError *error, PlanErrorCode code, const char *part);

/* SQL behind the store's back; returns the first column of the last row. */
gint64 sql (const char *path, const char *text);

GBytes *file_bytes (const char *path);

/* `store_file` as a store, made when it is not there. */
DbStore *store_open (void);

/* A run as the command line would make it: its texts on loan from the program. */
DbRun sample_run (void);
gint64 store_begin_run (DbStore *store);
void store_add_step (DbStore *store, gint64 run_id, gint64 step);
void ck_assert_run_eq (const DbRun *a, const DbRun *b);

PlanSchedule *sample_schedule (void);
PlanTrace *sample_trace (const PlanSchedule *schedule, const char *origin, guint n_spans);
void ck_assert_trace_eq (const PlanTrace *a, const PlanTrace *b);

G_END_DECLS
