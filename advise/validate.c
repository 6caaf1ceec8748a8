/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/validate.h"

#include "advise/predict.h"
#include "advise/uncertainty.h"
#include "advise/workspaces.h"
#include "db/catalogue.h"
#include "db/tables.h"
#include "planner/base/error.h"
#include "planner/runs/accuracy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES 65536

static void
run_clear (gpointer data)
{
  AdviseRun *run = data;
  g_clear_pointer (&run->of, plan_case_free);
  plan_run_row_clear (&run->row);
}

void
advise_validation_clear (AdviseValidation *self)
{
  g_clear_pointer (&self->runs, g_array_unref);
  g_clear_pointer (&self->wrong, g_ptr_array_unref);
  g_clear_pointer (&self->table, plan_run_table_free);
  g_clear_pointer (&self->origin, g_free);
  g_clear_pointer (&self->db, g_free);
}

static void
take_row (PlanRunRow *row, const char *wrong, gpointer user_data)
{
  AdviseValidation *self = user_data;
  if (!row)
    {
      g_ptr_array_add (self->wrong, g_strdup (wrong));
      return;
    }
  const AdviseRun run = { .row = *row, .is_selected = TRUE };
  g_array_append_val (self->runs, run);
  *row = (PlanRunRow){ 0 };
}

static gboolean
read_stream (AdviseValidation *self, FILE *file, GError **error)
{
  g_autofree char *buffer = g_malloc (CHUNK_BYTES);
  gsize length;
  while ((length = fread (buffer, 1, CHUNK_BYTES, file)) > 0)
    if (!plan_run_table_feed (self->table, buffer, length, error))
      return FALSE;
  if (ferror (file))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", self->origin, g_strerror (errno));
      return FALSE;
    }
  return plan_run_table_end (self->table, error);
}

static void
begin (AdviseValidation *self, const char *origin)
{
  self->origin = g_strdup (origin);
  self->runs = g_array_new (FALSE, TRUE, sizeof (AdviseRun));
  g_array_set_clear_func (self->runs, run_clear);
  self->wrong = g_ptr_array_new_with_free_func (g_free);
  self->table = plan_run_table_new (origin, take_row, self);
}

/* Takes a stored run. The store's columns are the table's, except the texts of model, cluster and
 * plan. */
static void
take_stored (AdviseValidation *self, const DbTable *stored, guint row)
{
  PlanRunRow run = { .line = row + 1 };
  const char *cluster = db_table_cell_named (stored, row, "cluster_text");
  for (guint c = 0; c < db_kind_n_columns (stored->kind); c++)
    {
      const char *name = db_kind_column_name (stored->kind, c);
      PlanRunColumn column;
      if (plan_run_column_parse (g_str_equal (name, "row_group") ? "group" : name, &column, NULL))
        run.cell[column] = g_strdup (db_table_cell (stored, row, c));
    }
  plan_run_table_add (self->table, &run, db_table_cell_named (stored, row, "model_text"),
                      cluster ? cluster : "", db_table_cell_named (stored, row, "plan_text"));
}

/* Takes a run of this program; its group consists of the runs of the same plan. */
static void
take_own (AdviseValidation *self, const DbTable *stored, guint row)
{
  const char *measured = db_table_cell_named (stored, row, "measured_step_ns");
  const double ms = 1e-6 * g_ascii_strtod (measured, NULL);
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  if (!g_str_equal (db_table_cell_named (stored, row, "state"), "done") || ms <= 0)
    return;
  const struct
  {
    PlanRunColumn column;
    const char *value;
  } cells[] = {
    { PLAN_RUN_SOURCE, ADVISE_OWN_RUNS },
    { PLAN_RUN_ROW_ID, db_table_cell_named (stored, row, "uid") },
    { PLAN_RUN_GROUP, db_table_cell_named (stored, row, "schedule_hash") },
    { PLAN_RUN_USE, "fit" },
    { PLAN_RUN_QUALITY, "A" },
    { PLAN_RUN_STACK, "native" },
    { PLAN_RUN_STEP_MS, g_ascii_dtostr (text, sizeof text, ms) },
    { PLAN_RUN_TIME_OK, "yes" },
    { PLAN_RUN_MEMORY_OK, "no" },
  };
  PlanRunRow run = { .line = row + 1 };
  for (guint i = 0; i < G_N_ELEMENTS (cells); i++)
    run.cell[cells[i].column] = g_strdup (cells[i].value);
  plan_run_table_add (self->table, &run, db_table_cell_named (stored, row, "model_text"),
                      db_table_cell_named (stored, row, "cluster_text"),
                      db_table_cell_named (stored, row, "plan_text"));
}

gboolean
advise_validation_read_store (const char *db, AdviseValidation *out_self, GError **error)
{
  g_auto (AdviseValidation) self = { 0 };
  g_autoptr (DbStore) store = db_store_open_readonly (db, error);
  g_autoptr (DbTable) stored
      = store ? db_store_read_table (store, DB_KIND_MEASUREMENTS, NULL, error) : NULL;
  g_autoptr (DbTable) own = stored ? db_store_read_table (store, DB_KIND_RUNS, NULL, error) : NULL;
  if (!own)
    {
      g_prefix_error (error, "fsdplan import brings measured runs into the store: ");
      return FALSE;
    }
  begin (&self, db_store_path (store));
  for (guint row = 0; row < db_table_n_rows (stored); row++)
    take_stored (&self, stored, row);
  for (guint row = 0; row < db_table_n_rows (own); row++)
    take_own (&self, own, row);
  self.db = g_strdup (db);
  *out_self = self;
  self = (AdviseValidation){ 0 };
  return TRUE;
}

gboolean
advise_validation_read (const char *path, AdviseValidation *out_self, GError **error)
{
  g_auto (AdviseValidation) self = { 0 };
  g_autofree char *shipped = path ? NULL : db_catalogue_runs_path ();
  const char *const name = path ? path : shipped;
  const gboolean is_stdin = g_str_equal (name, "-");
  FILE *file = is_stdin ? stdin : fopen (name, "r");
  if (!file)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", name, g_strerror (errno));
      return FALSE;
    }
  begin (&self, is_stdin ? "stdin" : path ? path : "the shipped runs.csv");
  const gboolean is_read = read_stream (&self, file, error);
  if (!is_stdin)
    fclose (file);
  if (!is_read)
    return FALSE;
  *out_self = self;
  self = (AdviseValidation){ 0 };
  return TRUE;
}

/* Whether a cell has that value; for NULL, whether it has any but "", 0, no and none. */
static gboolean
is_selected_by (const char *cell, const char *value)
{
  static const char *const nothing[] = { "", "0", "no", "none", NULL };
  const char *const is = cell ? cell : "";
  return value ? g_str_equal (is, value) : !g_strv_contains (nothing, is);
}

gboolean
advise_validation_where (AdviseValidation *self, const char *text, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (text, "=", 2);
  PlanRunColumn column;
  if (!halves[0])
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--where: names no column");
      return FALSE;
    }
  if (!plan_run_column_parse (halves[0], &column, error))
    {
      g_prefix_error (error, "--where: ");
      return FALSE;
    }
  guint n_left = 0;
  for (guint i = 0; i < self->runs->len; i++)
    {
      AdviseRun *run = &g_array_index (self->runs, AdviseRun, i);
      run->is_selected &= is_selected_by (run->row.cell[column], halves[1]);
      n_left += run->is_selected;
    }
  if (n_left > 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "no row of %s is left with %s", self->origin,
               text);
  return FALSE;
}

/* A row's name up to its first dash names its publication; of a name without a dash the column
 * tells. */
char *
advise_run_source (const AdviseRun *run)
{
  const char *name = run->row.cell[PLAN_RUN_ROW_ID], *dash = strchr (name, '-');
  const char *cell = run->row.cell[PLAN_RUN_SOURCE];
  return dash ? g_strndup (name, (gsize)(dash - name)) : g_strdup (cell ? cell : "unknown");
}

char *
advise_run_source_word (const AdviseRun *run)
{
  char *word
      = g_strcanon (advise_run_source (run), G_CSET_a_2_z G_CSET_A_2_Z G_CSET_DIGITS "._+", '-');
  return *word ? word : (g_free (word), g_strdup ("unknown"));
}

/* An id for a text, the same for equal texts. */
static guint
id_of (GHashTable *numbers, const char *text)
{
  gpointer known;
  if (g_hash_table_lookup_extended (numbers, text, NULL, &known))
    return GPOINTER_TO_UINT (known);
  const guint number = g_hash_table_size (numbers);
  g_hash_table_insert (numbers, g_strdup (text), GUINT_TO_POINTER (number));
  return number;
}

/* An id for a cluster, the same at every site. */
static guint
id_of_cluster (GHashTable *clusters, GHashTable *numbers, const PlanCluster *cluster)
{
  gpointer known;
  if (g_hash_table_lookup_extended (clusters, cluster, NULL, &known))
    return GPOINTER_TO_UINT (known);
  PlanCluster anywhere = *cluster;
  anywhere.site = NULL;
  g_autofree char *text = plan_cluster_print (&anywhere);
  const guint number = id_of (numbers, text);
  g_hash_table_insert (clusters, (gpointer)cluster, GUINT_TO_POINTER (number));
  return number;
}

/* An id for a run, the same for runs that differ only in fields that are left out. */
static guint
id_of_fields (GHashTable *numbers, const AdviseRun *run, guint cluster, const gboolean *is_left_out)
{
  gint64 fields[PLAN_N_FIELDS + 2] = { (gint64)(gintptr)run->row.model, cluster };
  gpointer known;
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (!is_left_out[f])
      fields[f + 2]
          = f == PLAN_STACK ? run->of->plan.value[f] % PLAN_STACK_BASE : run->of->plan.value[f];
  g_autoptr (GBytes) key = g_bytes_new (fields, sizeof fields);
  if (g_hash_table_lookup_extended (numbers, key, NULL, &known))
    return GPOINTER_TO_UINT (known);
  const guint number = g_hash_table_size (numbers);
  g_hash_table_insert (numbers, g_steal_pointer (&key), GUINT_TO_POINTER (number));
  return number;
}

static GHashTable *
ids_of_fields_new (void)
{
  return g_hash_table_new_full (g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, NULL);
}

/* Fields that one is free to choose when deciding what to run; arithmetic is not among them. */
static void
find_choices (gboolean *out_is_choice)
{
  static const PlanField choices[] = { PLAN_STRATEGY,
                                       PLAN_DP_OUTER,
                                       PLAN_OUTER_STRATEGY,
                                       PLAN_TP,
                                       PLAN_CP,
                                       PLAN_EP,
                                       PLAN_PP,
                                       PLAN_SP,
                                       PLAN_MBS,
                                       PLAN_FINE_GRAINED,
                                       PLAN_UNIT,
                                       PLAN_COMM_UNIT,
                                       PLAN_DOUBLE_BUFFER,
                                       PLAN_NCCL_UB,
                                       PLAN_AG_GROUP,
                                       PLAN_SHARP,
                                       PLAN_RECOMPUTE,
                                       PLAN_RECOMPUTE_METHOD,
                                       PLAN_RECOMPUTE_MODULES,
                                       PLAN_RECOMPUTE_LAYERS,
                                       PLAN_OFFLOAD_LAYERS };
  memset (out_is_choice, 0, PLAN_N_FIELDS * sizeof *out_is_choice);
  for (guint i = 0; i < G_N_ELEMENTS (choices); i++)
    out_is_choice[choices[i]] = TRUE;
}

static AdviseInput
input_of (const AdviseRun *run, const SimAdjustments *adjustments, const char *db)
{
  return (AdviseInput){ .model = (PlanModel *)run->row.model,
                        .cluster = (PlanCluster *)run->row.cluster,
                        .adjustments = adjustments,
                        .db = db };
}

/* Makes a PlanCase of each run. Runs with equal plans get one number, and so do runs with equal
 * questions. */
static void
resolve (AdviseValidation *self)
{
  static const gboolean nothing[PLAN_N_FIELDS];
  gboolean is_choice[PLAN_N_FIELDS];
  g_autoptr (GHashTable) groups = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GHashTable) plans = ids_of_fields_new ();
  g_autoptr (GHashTable) questions = ids_of_fields_new ();
  g_autoptr (GHashTable) clusters = g_hash_table_new (NULL, NULL);
  g_autoptr (GHashTable) texts = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  find_choices (is_choice);
  for (guint i = 0; i < self->runs->len; i++)
    {
      AdviseRun *run = &g_array_index (self->runs, AdviseRun, i);
      const char *group = run->row.cell[PLAN_RUN_GROUP];
      g_autoptr (GError) why = NULL;
      run->group = id_of (groups, group ? group : run->row.cell[PLAN_RUN_ROW_ID]);
      if (run->row.skipped)
        continue;
      const AdviseInput input = input_of (run, NULL, self->db);
      g_clear_pointer (&run->of, plan_case_free);
      run->of = advise_case (&input, &run->row.plan, &why);
      if (!run->of)
        {
          run->row.skipped = g_strdup (why->message);
          continue;
        }
      const guint cluster = id_of_cluster (clusters, texts, run->row.cluster);
      run->configuration = id_of_fields (plans, run, cluster, nothing);
      run->question = id_of_fields (questions, run, cluster, is_choice);
    }
}

/* 18 bytes per parameter (weights 2, gradients 4, optimizer 12), each divided by the ranks that
 * shard it. */
static double
naive_mib (const AdviseRun *run)
{
  const gint64 *value = run->of->plan.value;
  const double parameters
      = (double)plan_model_parameters (run->row.model) / (double)(value[PLAN_TP] * value[PLAN_PP]);
  const double all
      = (double)(plan_data_parallel (&run->of->plan, run->row.cluster) * value[PLAN_CP]);
  const double inner = all / (double)value[PLAN_DP_OUTER];
  const gboolean is_hfsdp = value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM;
  const double weights = plan_shards_weights (&run->of->plan) ? inner : 1;
  const double grads = plan_shards_grads (&run->of->plan) ? inner : 1;
  const double optimizer = !plan_shards_optimizer (&run->of->plan) ? 1 : is_hfsdp ? all : inner;
  return parameters * (2 / weights + 4 / grads + 12 / optimizer) / 1048576;
}

/* 6 FLOPs per parameter and token, at the data sheet's rate. */
static double
naive_ms_at_peak (const AdviseRun *run)
{
  const PlanCluster *cluster = run->row.cluster;
  const double peak = cluster->peak_flops[plan_field_dtype (&run->of->plan, PLAN_COMPUTE)];
  const double tokens
      = (double)run->of->plan.value[PLAN_GBS] * (double)run->of->plan.value[PLAN_SEQ];
  return peak > 0 ? 6e3 * (double)plan_model_parameters (run->row.model) * tokens / peak
                        / (double)plan_cluster_devices (cluster)
                  : 0;
}

/* An id for a row's stack and device: naive estimates are scaled for each apart. */
static guint
kind_of (GHashTable *kinds, const AdviseRun *run)
{
  g_autofree char *name
      = g_strconcat (run->row.cell[PLAN_RUN_STACK], "/", run->row.cell[PLAN_RUN_GPU], NULL);
  return id_of (kinds, name);
}

/* Per stack and device the factor by which steps are slower than at peak rate, the best for the
 * rows marked fit; 0: there are none. */
static GArray *
best_slowdowns (const AdviseValidation *self, GHashTable *kinds)
{
  GArray *slowdowns = g_array_new (FALSE, FALSE, sizeof (double));
  for (guint kind = 0; kind < g_hash_table_size (kinds); kind++)
    {
      g_autoptr (GArray) samples = g_array_new (FALSE, FALSE, sizeof (PlanSample));
      for (guint i = 0; i < self->runs->len; i++)
        {
          const AdviseRun *run = &g_array_index (self->runs, AdviseRun, i);
          const PlanSample sample
              = { run->group, run->configuration, run->naive[PLAN_RUN_QUANTITY_TIME],
                  run->row.measured[PLAN_RUN_QUANTITY_TIME] };
          if (run->row.is_for_fitting && run->row.time_ok && sample.predicted > 0
              && kind_of (kinds, run) == kind)
            g_array_append_val (samples, sample);
        }
      const double slowdown
          = plan_accuracy_best_scale ((const PlanSample *)(gpointer)samples->data, samples->len);
      g_array_append_val (slowdowns, slowdown);
    }
  return slowdowns;
}

static void
predict_naively (AdviseValidation *self)
{
  g_autoptr (GHashTable) kinds = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < self->runs->len; i++)
    {
      AdviseRun *run = &g_array_index (self->runs, AdviseRun, i);
      if (run->row.skipped)
        continue;
      kind_of (kinds, run);
      run->naive[PLAN_RUN_QUANTITY_TIME] = naive_ms_at_peak (run);
      for (guint q = PLAN_RUN_QUANTITY_ALLOCATED; q < PLAN_N_RUN_QUANTITIES; q++)
        run->naive[q] = naive_mib (run);
    }
  g_autoptr (GArray) slowdowns = best_slowdowns (self, kinds);
  for (guint i = 0; i < self->runs->len; i++)
    {
      AdviseRun *run = &g_array_index (self->runs, AdviseRun, i);
      if (!run->row.skipped)
        run->naive[PLAN_RUN_QUANTITY_TIME]
            *= g_array_index (slowdowns, double, kind_of (kinds, run));
    }
}

/* What the threads that predict runs share. */
typedef struct
{
  GPtrArray *runs; /* AdviseRun *, one of each plan */
  const SimAdjustments *adjustments;
  const char *db;
  gint next;
} Work;

static void
find_error_range (AdviseRun *run, const SimAdjustments *adjustments, const SimSummary *s)
{
  const PlanCluster *cluster = run->row.cluster;
  const PlanStack *stack = run->of->stack;
  const AdviseMemoryError error = advise_memory_error (adjustments, cluster, stack);
  g_autofree char *source = advise_run_source_word (run);
  run->exposed = advise_exposed_share (s->step_ns, s->exposed_tensor_ns, s->exposed_gather_ns,
                                       s->exposed_reduce_ns);
  run->device = s->memory.device;
  run->resting = s->memory.allocated;
  run->error_range = advise_time_uncertainty (adjustments, run->of, source, run->exposed, NULL);
  run->p_fits = advise_p_fits (&error, run->device, run->resting, cluster->memory_bytes);
}

static void
predict_run (AdviseRun *run, const SimAdjustments *adjustments, const char *db)
{
  const AdviseInput input = input_of (run, adjustments, db);
  g_autoptr (GError) why = NULL;
  SimSummary summaries[SIM_MAX_STAGES];
  if (!advise_measure_case (&input, run->of, summaries, &why))
    {
      run->row.skipped = g_strdup (why->message);
      return;
    }
  const guint n = (guint)run->of->plan.value[PLAN_PP],
              fullest = advise_stages_fullest (summaries, n);
  const PlanRunMemoryStage told = plan_run_row_memory_stage (&run->row);
  SimSummary summary = summaries[fullest];
  run->is_predicted = TRUE;
  find_error_range (run, adjustments, &summary);
  run->fits = summary.memory.device <= run->row.cluster->memory_bytes;
  summary.memory = summaries[told == PLAN_RUN_FIRST_STAGE  ? 0
                             : told == PLAN_RUN_LAST_STAGE ? n - 1
                                                           : fullest]
                       .memory;
  run->predicted[PLAN_RUN_QUANTITY_TIME] = 1e-6 * (double)summary.step_ns;
  run->predicted[PLAN_RUN_QUANTITY_ALLOCATED] = advise_mib (summary.memory.allocated);
  run->predicted[PLAN_RUN_QUANTITY_MAX_ALLOCATED] = advise_mib (summary.memory.max_allocated);
  run->predicted[PLAN_RUN_QUANTITY_RESERVED] = advise_mib (summary.memory.reserved);
  run->predicted[PLAN_RUN_QUANTITY_DEVICE] = advise_mib (summary.memory.device);
}

static gpointer
work (gpointer data)
{
  Work *self = data;
  guint i;
  while ((i = (guint)g_atomic_int_add (&self->next, 1)) < self->runs->len)
    predict_run (self->runs->pdata[i], self->adjustments, self->db);
  return NULL;
}

static void
copy_prediction (const AdviseRun *from, AdviseRun *to)
{
  to->is_predicted = from->is_predicted;
  to->exposed = from->exposed;
  to->device = from->device;
  to->resting = from->resting;
  to->error_range = from->error_range;
  to->p_fits = from->p_fits;
  to->fits = from->fits;
  memcpy (to->predicted, from->predicted, sizeof to->predicted);
  if (from->row.skipped)
    to->row.skipped = g_strdup (from->row.skipped);
}

/* An estimate of how long a step takes to simulate: layers times micro batches. */
static double
length_of (const AdviseRun *run)
{
  const gint64 *value = run->of->plan.value;
  const double ranks = (double)plan_data_parallel (&run->of->plan, run->row.cluster);
  return (double)run->row.model->layers * (double)value[PLAN_GBS]
         / ((double)value[PLAN_MBS] * ranks);
}

static gint
compare_lengths (gconstpointer a, gconstpointer b)
{
  const double one = length_of (*(AdviseRun *const *)a), other = length_of (*(AdviseRun *const *)b);
  return (one < other) - (one > other);
}

/* Predicts the longest runs first, so that nobody has to wait for one at the end. */
static void
share_out (Work *shared)
{
  g_ptr_array_sort (shared->runs, compare_lengths);
  const guint n = MIN (g_get_num_processors (), shared->runs->len);
  g_autoptr (GPtrArray) threads = g_ptr_array_new ();
  for (guint i = 1; i < n; i++)
    g_ptr_array_add (threads, g_thread_new ("validate", work, shared));
  work (shared);
  for (guint i = 0; i < threads->len; i++)
    g_thread_join (threads->pdata[i]);
}

void
advise_validation_predict (AdviseValidation *self, const SimAdjustments *adjustments)
{
  g_autoptr (GPtrArray) first = g_ptr_array_new ();
  g_autoptr (GHashTable) by_plan = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autofree AdviseRun **same = g_new0 (AdviseRun *, self->runs->len + 1);
  resolve (self);
  predict_naively (self);
  for (guint i = 0; i < self->runs->len; i++)
    {
      AdviseRun *run = &g_array_index (self->runs, AdviseRun, i);
      if (run->row.skipped || !run->is_selected)
        continue;
      g_autofree char *source = advise_run_source (run);
      char *key
          = g_strdup_printf ("%u %p %" G_GINT64_FORMAT " %s", run->configuration,
                             (gpointer)run->row.cluster, run->of->plan.value[PLAN_STACK], source);
      same[i] = g_hash_table_lookup (by_plan, key);
      if (same[i])
        {
          g_free (key);
          continue;
        }
      g_hash_table_insert (by_plan, key, run);
      g_ptr_array_add (first, run);
    }
  Work shared = { .runs = first, .adjustments = adjustments, .db = self->db };
  share_out (&shared);
  for (guint i = 0; i < self->runs->len; i++)
    if (same[i])
      copy_prediction (same[i], &g_array_index (self->runs, AdviseRun, i));
}
