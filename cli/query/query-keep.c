/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/query/query-keep.h"

#include "cli/io/output.h"
#include "db/plans.h"

#include <string.h>

static DbAnswer
answer_of (const CliKept *kept)
{
  return (DbAnswer){ .plan = { .hash = plan_hash (kept->plan),
                               .model_text = plan_model_print (kept->model),
                               .cluster_text = plan_cluster_print (kept->cluster),
                               .plan_text = plan_print (kept->plan) },
                     .step_ns = kept->score.time_ns,
                     .device_bytes = kept->score.device_bytes };
}

static gboolean
keep (const AdviseQuestion *question, CliKept *kept, guint n, GError **error)
{
  g_autoptr (DbStore) store = db_store_open (question->db, error);
  g_autofree DbAnswer *answers = g_new0 (DbAnswer, n);
  if (!store)
    return FALSE;
  for (guint i = 0; i < n; i++)
    answers[i] = answer_of (&kept[i]);
  const gboolean ok
      = db_store_add_query (store, PACKAGE_VERSION, question->words,
                            sim_params_default (kept[0].cluster)->id, answers, n, error);
  for (guint i = 0; i < n; i++)
    {
      kept[i].id = ok ? answers[i].plan_id : 0;
      db_answer_clear (&answers[i]);
    }
  return ok;
}

void
cli_query_keep (const AdviseQuestion *question, CliKept *kept, guint n)
{
  g_autoptr (GError) why = NULL;
  const gboolean is_nowhere = question->db && strcmp (question->db, ":memory:") == 0;
  if (question->keeps_nothing || is_nowhere || n == 0 || keep (question, kept, n, &why))
    return;
  cli_output_not_kept ("nothing was kept", why);
}

void
cli_query_keep_answers (const AdviseQuestion *question, const AdviseInput *input, GArray *answers)
{
  g_autofree CliKept *kept = g_new0 (CliKept, answers->len);
  for (guint i = 0; i < answers->len; i++)
    {
      const AdviseAnswer *answer = &g_array_index (answers, AdviseAnswer, i);
      kept[i] = (CliKept){ input->model, input->cluster, &answer->found->plan, answer->found->score,
                           0 };
    }
  cli_query_keep (question, kept, answers->len);
  for (guint i = 0; i < answers->len; i++)
    g_array_index (answers, AdviseAnswer, i).id = kept[i].id;
}

void
cli_query_add_id (CliTable *table, gint64 id)
{
  g_autofree char *text = id ? g_strdup_printf ("@%" G_GINT64_FORMAT, id) : NULL;
  cli_table_add (table, text);
}

void
cli_query_id_to_json (gint64 id, JsonBuilder *builder)
{
  g_autofree char *text = id ? g_strdup_printf ("@%" G_GINT64_FORMAT, id) : NULL;
  json_builder_set_member_name (builder, "id");
  json_builder_add_string_value (builder, text);
}

char *
cli_query_words (int argc, char **argv)
{
  GString *words = g_string_new (NULL);
  for (int i = 1; i < argc; i++)
    {
      g_autofree char *word = strpbrk (argv[i], " \t\n\"'\\$`*?;&|<>(){}[]~#!")
                                  ? g_shell_quote (argv[i])
                                  : g_strdup (argv[i]);
      g_string_append_printf (words, "%s%s", words->len ? " " : "", word);
    }
  return g_string_free (words, FALSE);
}
