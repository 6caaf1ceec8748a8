/* Plans and questions of queries in the store. */
#pragma once
#include "cli/query/query.h"
G_BEGIN_DECLS

/* A plan to be kept; its number in the store, 0 where it was not. */
typedef struct
{
  const PlanModel *model;
  const PlanCluster *cluster;
  const Plan *plan; /* resolved */
  PlanScore score;
  gint64 id;
} CliKept;

/* Stores the question with these answers. Where that cannot be done stderr says so, and nothing
 * else happens. */
void cli_query_keep (const AdviseQuestion *question, CliKept *kept, guint n);

/* Stores answers, and gives them their numbers. */
void cli_query_keep_answers (const AdviseQuestion *question, const AdviseInput *input,
                             GArray *answers);

/* "@7", or an empty cell; the member "id", or null. */
void cli_query_add_id (CliTable *table, gint64 id);
void cli_query_id_to_json (gint64 id, JsonBuilder *builder);

G_END_DECLS
