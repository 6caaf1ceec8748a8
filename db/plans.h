/* DbPlan: plans that were run or given as answers, each with the number that people write as @7;
 * and the questions that led to them.
 *
 * Runs and answers share plans: equal model, cluster and plan are one row. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *hash;
  char *model_text, *cluster_text, *plan_text; /* canonical */
} DbPlan;

void db_plan_clear (DbPlan *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbPlan, db_plan_clear)

/* Finds the number of a plan, and adds the plan where it is not stored. To be called in a
 * transaction. */
gboolean db_plan_find_or_add (DbStore *self, const DbPlan *plan, gint64 *out_id, GError **error);

/* Loads the plan with that number; INVALID where there is none. */
gboolean db_store_load_plan (DbStore *self, gint64 id, DbPlan *out_plan, GError **error);

/* Finds the number of the plan of a run. */
gboolean db_store_find_run_plan (DbStore *self, gint64 run_id, gint64 *out_id, GError **error);

/* A stored plan, with what refers to it. */
typedef struct
{
  gint64 id;
  DbPlan plan;
  gint64 runs, queries;         /* how many refer to it */
  gint64 step_ns, device_bytes; /* as a query predicted last; 0: none did */
} DbStoredPlan;

/* All plans by number; elements are DbStoredPlan, owned by the array. */
GArray *db_store_list_plans (DbStore *self, GError **error);

typedef struct
{
  DbPlan plan;
  gint64 step_ns;
  guint64 device_bytes;
  gint64 plan_id; /* set by the store */
} DbAnswer;

void db_answer_clear (DbAnswer *self);

/* Stores a question with its answers, in the order in which they are printed. The same question by
 * the same program with the same answers is stored once. */
gboolean db_store_add_query (DbStore *self, const char *program_version, const char *question,
                             const char *params_id, DbAnswer *answers, guint n_answers,
                             GError **error);

G_END_DECLS
