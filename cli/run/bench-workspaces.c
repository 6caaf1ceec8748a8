/* SPDX-License-Identifier: Apache-2.0 */
/* Asks cuDNN how much workspace attention needs, for the shapes of models and on GPUs that need not
 * be there; prints and stores the answers. */
#include "config.h"

#include "cli/run/bench.h"

#include "cli/io/commands.h"
#include "cli/io/watch.h"
#include "cli/run/backend.h"
#include "db/tables.h"
#include "db/transfer.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/model/model.h"
#include "planner/model/preset.h"

#include <stdio.h>
#include <string.h>

#define MAX_SIZE (G_GINT64_CONSTANT (1) << 30)

/* One shape on one GPU, and later cuDNN's answer. */
typedef struct
{
  gint64 capability;
  PlanWorkspace row;
} Question;

typedef struct
{
  const CliAskOptions *options;
  GArray *seqs, *batches, *tps; /* gint64; `seqs` empty: the longest of each model */
  GArray *questions;            /* Question, each once; after asking, those with an answer */
  guint n_refused;
} Asking;

static void
asking_clear (Asking *self)
{
  GArray **const arrays[] = { &self->seqs, &self->batches, &self->tps, &self->questions };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    g_clear_pointer (arrays[i], g_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Asking, asking_clear)

void
cli_ask_options_clear (CliAskOptions *self)
{
  char **const texts[] = { &self->models, &self->seqs, &self->batches, &self->tps };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_clear_pointer (texts[i], g_free);
}

void
cli_ask_options_add (CliAskOptions *self, CliContext *context)
{
  const GOptionEntry entries[] = {
    { &CLI_BENCH_WORKSPACES[2], 0, 0, G_OPTION_ARG_NONE, &self->is_given,
      "instead, ask cuDNN for attention's workspace on --cluster's GPUs, or on all kinds it knows",
      NULL },
    { "model", 0, 0, G_OPTION_ARG_STRING, &self->models,
      "of --workspaces: whose attention; all shipped models by default", "NAME,…" },
    { "seq", 0, 0, G_OPTION_ARG_STRING, &self->seqs,
      "of --workspaces: tokens per sequence; each model's longest by default", "N,…" },
    { "mbs", 0, 0, G_OPTION_ARG_STRING, &self->batches,
      "of --workspaces: sequences per micro batch; 1 by default", "N,…" },
    { "tp", 0, 0, G_OPTION_ARG_STRING, &self->tps,
      "of --workspaces: ranks that share a layer's heads; 1 by default", "N,…" },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (context, entries);
}

/* Parses "1,2,4". Without a text the array holds `fallback`, or nothing if that is 0. */
static GArray *
parse_sizes (const char *text, const char *what, gint64 fallback, GError **error)
{
  g_autoptr (GArray) sizes = g_array_new (FALSE, FALSE, sizeof (gint64));
  g_auto (GStrv) words = text ? g_strsplit (text, ",", -1) : NULL;
  for (char **word = words; word && *word; word++)
    {
      gint64 size;
      if (!plan_units_parse_int (*word, what, 1, MAX_SIZE, &size, error))
        return NULL;
      g_array_append_val (sizes, size);
    }
  if (!text && fallback > 0)
    g_array_append_val (sizes, fallback);
  return g_steal_pointer (&sizes);
}

static void
add_question (Asking *self, const Question *question)
{
  for (guint i = 0; i < self->questions->len; i++)
    if (memcmp (&g_array_index (self->questions, Question, i), question, sizeof *question) == 0)
      return;
  g_array_append_vals (self->questions, question, 1);
}

/* Adds all passes of one shape on one GPU, in bf16, in which models are trained; lowering uses the
 * answers for fp16, too. */
static void
add_shape (Asking *self, gint64 capability, const PlanModel *model, gint64 seq, gint64 batch,
           gint64 tp)
{
  for (PlanPass pass = 0; pass < PLAN_N_PASSES; pass++)
    {
      Question question;
      memset (&question, 0, sizeof question); /* compared byte by byte */
      question.capability = capability;
      question.row.dims[PLAN_DIM_ATTENTION_BWD_batch] = batch;
      question.row.dims[PLAN_DIM_ATTENTION_BWD_seq] = seq;
      question.row.dims[PLAN_DIM_ATTENTION_BWD_heads] = model->heads / tp;
      question.row.dims[PLAN_DIM_ATTENTION_BWD_kv_heads] = model->kv_heads / tp;
      question.row.dims[PLAN_DIM_ATTENTION_BWD_head_dim] = model->head_dim;
      question.row.dtype = PLAN_DTYPE_BF16;
      question.row.pass = pass;
      question.row.version = cli_backend.cudnn->version ();
      add_question (self, &question);
    }
}

static void
add_model (Asking *self, gint64 capability, const PlanModel *model)
{
  const guint n_seqs = MAX (self->seqs->len, 1);
  for (guint t = 0; t < self->tps->len; t++)
    for (guint s = 0; s < n_seqs; s++)
      for (guint b = 0; b < self->batches->len; b++)
        {
          const gint64 tp = g_array_index (self->tps, gint64, t);
          const gint64 seq
              = self->seqs->len ? g_array_index (self->seqs, gint64, s) : model->max_seq;
          if (model->heads % tp == 0 && model->kv_heads % tp == 0)
            add_shape (self, capability, model, seq, g_array_index (self->batches, gint64, b), tp);
        }
}

/* Adds all shapes of the named models, or of all presets that attend plainly (see
 * plan_model_attends_plainly). FALSE if a named model is not known, or does not. */
static gboolean
add_models (Asking *self, gint64 capability, GError **error)
{
  const char *models = self->options->models;
  g_auto (GStrv) named = models ? g_strsplit (models, ",", -1) : NULL;
  const char *const *names = named ? (const char *const *)named : plan_model_presets ();
  for (; *names; names++)
    {
      g_autoptr (PlanModel) model = plan_model_new_preset (*names, error);
      if (!model)
        return FALSE;
      if (plan_model_attends_plainly (model))
        add_model (self, capability, model);
      else if (named)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                       "--model: attention of %s is not plainly causal, and cuDNN is asked about "
                       "no other",
                       *names);
          return FALSE;
        }
    }
  return TRUE;
}

static gboolean
collect (Asking *self, const PlanCluster *cluster, GError **error)
{
  gboolean is_known = FALSE;
  for (const gint64 *c = cli_backend.cudnn->capabilities; *c; c++)
    if (!cluster || cluster->compute_capability == *c)
      {
        is_known = TRUE;
        if (!add_models (self, *c, error))
          return FALSE;
      }
  if (is_known)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "--cluster: cuDNN is asked about GPUs of compute capability 8.0, 9.0 and 10.0, and "
               "%s is none",
               cluster->device_name);
  return FALSE;
}

/* Asks all questions and keeps those with an answer. Of the others the first is reported. */
static gboolean
ask_all (Asking *self, GError **error)
{
  g_autoptr (GArray) answered = g_array_new (FALSE, FALSE, sizeof (Question));
  for (guint i = 0; i < self->questions->len; i++)
    {
      Question *question = &g_array_index (self->questions, Question, i);
      g_autoptr (GError) why = NULL;
      if (cli_watch_is_due ())
        fprintf (stderr, "\rbench: %u of %u shapes \033[K", i, self->questions->len);
      if (cli_backend.cudnn->ask (question->capability, &question->row, &why))
        g_array_append_vals (answered, question, 1);
      else if (!g_error_matches (why, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED))
        {
          g_propagate_error (error, g_steal_pointer (&why));
          return FALSE;
        }
      else if (self->n_refused++ == 0)
        fprintf (stderr,
                 "fsdplan: no row where cuDNN has no kernel: heads of %" G_GINT64_FORMAT
                 ", %s: %s\n",
                 question->row.dims[PLAN_DIM_ATTENTION_BWD_head_dim],
                 plan_pass_name (question->row.pass), why->message);
    }
  cli_watch_erase ();
  g_array_unref (self->questions);
  self->questions = g_steal_pointer (&answered);
  return TRUE;
}

/* --- rows of the store -------------------------------------------------------------------- */

#define N_CELLS 11

static void
fill_cells (const Question *question, char *cells[N_CELLS])
{
  const PlanWorkspace *row = &question->row;
  guint n = 0;
  cells[n++] = g_strdup_printf ("%u", row->version);
  cells[n++] = g_strdup_printf ("%" G_GINT64_FORMAT ".%" G_GINT64_FORMAT, question->capability / 10,
                                question->capability % 10);
  cells[n++] = g_strdup (plan_pass_name (row->pass));
  cells[n++] = g_strdup ("causal");
  cells[n++] = g_strdup (plan_dtype_name (row->dtype));
  for (guint d = 0; d < PLAN_N_WORKSPACE_DIMS; d++)
    cells[n++] = g_strdup_printf ("%" G_GINT64_FORMAT, row->dims[d]);
  cells[n++] = g_strdup_printf ("%" G_GUINT64_FORMAT, row->bytes);
}

static const CliColumn columns[N_CELLS]
    = { { "cudnn", TRUE },    { "architecture", FALSE },  { "pass", FALSE },
        { "mask", FALSE },    { "format", FALSE },        { "batch", TRUE },
        { "seq", TRUE },      { "heads", TRUE },          { "kv_heads", TRUE },
        { "head_dim", TRUE }, { "workspace_bytes", TRUE } };

static void
print (const Asking *self, gboolean is_dry, CliFormat format)
{
  const guint n = is_dry ? N_CELLS - 1 : N_CELLS;
  g_autoptr (CliTable) table = cli_table_new (columns, n);
  for (guint i = 0; i < self->questions->len; i++)
    {
      char *cells[N_CELLS];
      fill_cells (&g_array_index (self->questions, Question, i), cells);
      for (guint c = 0; c < N_CELLS; c++)
        {
          if (c < n)
            cli_table_add (table, cells[c]);
          g_free (cells[c]);
        }
    }
  cli_table_print (table, format);
}

static void
add_row (const Asking *self, guint i, const char *created, DbTable *rows)
{
  char *values[N_CELLS];
  const char *cells[N_CELLS + 2][2]
      = { { "created", created }, { "program_version", PACKAGE_VERSION } };
  fill_cells (&g_array_index (self->questions, Question, i), values);
  for (guint c = 0; c < N_CELLS; c++)
    {
      cells[c + 2][0] = columns[c].name;
      cells[c + 2][1] = values[c];
    }
  db_table_add (rows, (const char *const(*)[2])cells, N_CELLS + 2, i + 1);
  for (guint c = 0; c < N_CELLS; c++)
    g_free (values[c]);
}

/* Stores the answers. A row that is stored already must have the same figures. */
static gboolean
keep (const Asking *self, const char *db, GError **error)
{
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *created = g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
  g_autoptr (GPtrArray) tables = g_ptr_array_new_with_free_func ((GDestroyNotify)db_table_free);
  DbTable *rows = db_table_new (DB_KIND_WORKSPACES);
  const DbSource source = { .origin = "cuDNN", .tables = tables };
  DbImport done;
  g_ptr_array_add (tables, rows);
  for (guint i = 0; i < self->questions->len; i++)
    add_row (self, i, created, rows);
  g_autoptr (DbStore) store = db_store_open (db, error);
  return store && db_store_import (store, &source, 1, FALSE, &done, error);
}

gboolean
cli_ask_workspaces (const CliAskOptions *options, const PlanCluster *cluster, gboolean is_dry,
                    CliFormat format, const char *db, GError **error)
{
  g_auto (Asking) self = { .options = options };
  if (!cli_backend.cudnn)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                           CLI_BENCH_WORKSPACES ": this program is built without cuDNN");
      return FALSE;
    }
  self.questions = g_array_new (FALSE, FALSE, sizeof (Question));
  if (!(self.seqs = parse_sizes (options->seqs, "--seq", 0, error))
      || !(self.batches = parse_sizes (options->batches, "--mbs", 1, error))
      || !(self.tps = parse_sizes (options->tps, "--tp", 1, error))
      || !collect (&self, cluster, error)
      || (!is_dry && (!cli_backend.cudnn->prepare (error) || !ask_all (&self, error))))
    return FALSE;
  print (&self, is_dry, format);
  return is_dry || keep (&self, db, error);
}
