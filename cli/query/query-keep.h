/* Stores questions of queries and the plans that answer them. */
#pragma once
#include "cli/query/query.h"
G_BEGIN_DECLS

/* A plan to store; `id` becomes its number, or stays 0 where it could not be stored. */
typedef struct
{
  const PlanModel *model;
  const PlanCluster *cluster;
  const Plan *plan; /* resolved */
  PlanScore score;
  gint64 id;
} CliKept;

/* Stores a question with its answers. If that fails it is reported on standard error, and the
 * command goes on. */
void cli_query_keep (const AdviseQuestion *question, CliKept *kept, guint n);

/* Stores a question with its answers and sets their numbers. */
void cli_query_keep_answers (const AdviseQuestion *question, const AdviseInput *input,
                             GArray *answers);

/* Adds a cell "@7", or an empty one for 0; adds the member "id", null for 0. */
void cli_query_add_id (CliTable *table, gint64 id);
void cli_query_id_to_json (gint64 id, JsonBuilder *builder);

G_END_DECLS
