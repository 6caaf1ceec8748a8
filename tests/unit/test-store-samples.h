/* Shared by tests of the store: a folder per test, samples of all that is stored, and direct reads
 * of the file. */
#pragma once
#include "db/runs.h"
#include "db/traces.h"
#include "planner/base/error.h"
#include <glib.h>
G_BEGIN_DECLS

/* An empty folder for the running test, and a file name in it. */
extern char *folder;
extern char *store_file;
void store_setup (void);
void store_teardown (void);
void store_remove_tree (const char *path);

/* Fails the test if a call has failed, which `what` names. The error is a pointer, as the call sets
 * it first. */
void must (gboolean ok, GError *const *error, const char *what);

/* Checks that the error has that code and message. */
void ck_assert_refused (const GError *error, PlanErrorCode code, const char *part);

/* Runs SQL on the file directly; returns the first column of the last row. */
gint64 sql (const char *path, const char *text);

GBytes *file_bytes (const char *path);

/* Opens `store_file` as a store; makes it if it does not exist. */
DbStore *store_open (void);

/* A run as the command line would make it; its texts belong to the program. */
DbRun sample_run (void);
gint64 store_begin_run (DbStore *store);
void store_add_step (DbStore *store, gint64 run_id, gint64 step);
void ck_assert_run_eq (const DbRun *a, const DbRun *b);

PlanSchedule *sample_schedule (void);
PlanTrace *sample_trace (const PlanSchedule *schedule, const char *origin, guint n_spans);
void ck_assert_trace_eq (const PlanTrace *a, const PlanTrace *b);

G_END_DECLS
