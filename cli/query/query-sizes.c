/* SPDX-License-Identifier: Apache-2.0 */
/* Asks one question for several clusters, sizes of a cluster, or stacks, and shows side by side:
 * the best plan of each, what training on so many tokens takes with it, and which of them meets the
 * goals.
 *
 * The global batch decides what is trained, so it is never changed. Where no data-parallel size
 * divides it, the row names the nearest batches that would do. */
#include "config.h"

#include "advise/resize.h"
#include "advise/training.h"
#include "cli/io/options.h"
#include "cli/io/watch.h"
#include "cli/query/query-keep.h"
#include "cli/query/query.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <stdio.h>
#include <string.h>

#define MOST_ROWS 64

typedef struct
{
  AdviseInput input; /* owns cluster and plan, borrows the model */
  AdviseChoice choice;
  AdviseQuery query;
  const AdviseAnswer *best; /* NULL: there is none */
  double price;             /* USD per device and hour; 0: not given */
  double seconds, gpu_hours, cost, efficiency;
  char *note;
  GError *refusal; /* the rule that leaves no legal plan */
  gint64 id;
} Row;

typedef struct
{
  const AdviseQuestion *question;
  GPtrArray *rows; /* Row */
  double tokens, deadline_s, budget, goodput;
  gboolean has_price, has_stacks;
} Sizes;

static void
row_free (gpointer data)
{
  Row *self = data;
  advise_query_clear (&self->query);
  plan_cluster_free (self->input.cluster);
  g_free (self->input.cluster_spec);
  g_free (self->note);
  g_clear_error (&self->refusal);
  g_free (self);
}

static void
sizes_clear (Sizes *self)
{
  g_clear_pointer (&self->rows, g_ptr_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Sizes, sizes_clear)

static gboolean
add_row (Sizes *self, const AdviseInput *like, PlanCluster *cluster, const char *spec)
{
  Row *row = g_new0 (Row, 1);
  row->input = *like;
  row->input.cluster = cluster;
  row->input.cluster_spec = g_strdup (spec);
  g_ptr_array_add (self->rows, row);
  return TRUE;
}

/* Adds a row for each size that --gpus names. */
static gboolean
add_sizes (Sizes *self, const AdviseInput *like, const PlanCluster *cluster, const char *spec,
           const char *gpus, GError **error)
{
  g_autoptr (GArray) sizes = cli_parse_gpus (gpus, error);
  for (guint i = 0; sizes && i < sizes->len; i++)
    {
      PlanCluster *resized = advise_resize (cluster, g_array_index (sizes, gint64, i), error);
      if (!resized)
        return FALSE;
      add_row (self, like, resized, spec);
    }
  return sizes != NULL;
}

static gboolean
add_cluster (Sizes *self, const CliSizes *asked, const AdviseInput *input, const char *spec,
             GError **error)
{
  g_autoptr (PlanCluster) cluster = cli_cluster_new (spec, self->question->db, error);
  if (!cluster)
    return FALSE;
  return asked->gpus ? add_sizes (self, input, cluster, spec, asked->gpus, error)
                     : add_row (self, input, g_steal_pointer (&cluster), spec);
}

/* Adds a row for the cluster in its own size. */
static gboolean
add_own (Sizes *self, const AdviseInput *input, GError **error)
{
  g_autofree char *text = plan_cluster_print (input->cluster);
  PlanCluster *copy = plan_cluster_parse (text, "cluster", error);
  return copy && add_row (self, input, copy, input->cluster_spec);
}

/* Replaces each row by one for each stack, side by side. */
static gboolean
multiply_by_stacks (Sizes *self, char *const *stacks, GError **error)
{
  g_autoptr (GPtrArray) rows = g_steal_pointer (&self->rows);
  self->rows = g_ptr_array_new_with_free_func (row_free);
  for (guint i = 0; i < rows->len; i++)
    for (char *const *stack = stacks; *stack; stack++)
      {
        const Row *row = rows->pdata[i];
        AdviseInput input = row->input;
        if (!plan_set (&input.plan, "stack", *stack, error) || !add_own (self, &input, error))
          return FALSE;
      }
  return TRUE;
}

static gboolean
add_rows (Sizes *self, const CliSizes *asked, const AdviseInput *input, GError **error)
{
  self->rows = g_ptr_array_new_with_free_func (row_free);
  for (char **c = asked->clusters; c && *c; c++)
    if (!add_cluster (self, asked, input, *c, error))
      return FALSE;
  if (self->rows->len == 0
      && !(asked->gpus
               ? add_sizes (self, input, input->cluster, input->cluster_spec, asked->gpus, error)
               : add_own (self, input, error)))
    return FALSE;
  self->has_stacks = asked->stacks != NULL;
  if (self->has_stacks && !multiply_by_stacks (self, asked->stacks, error))
    return FALSE;
  if (self->rows->len <= MOST_ROWS)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%u combinations of clusters, sizes and stacks are asked for: at most %d are "
               "answered at once",
               self->rows->len, MOST_ROWS);
  return FALSE;
}

/* Why a row has no answer: too little memory, no legal plan, or a global batch that cannot be
 * divided. In the last case it names batches that can: multiples of the number of devices. The
 * caller frees. */
static char *
why_none (Row *row)
{
  const gint64 all = plan_cluster_devices (row->input.cluster);
  const gint64 gbs = row->input.plan.value[PLAN_GBS];
  g_autoptr (GError) why = NULL;
  guint64 bytes = 0;
  Plan plan;
  if (advise_query_least (&row->choice, &plan, &bytes, &why))
    return g_strdup_printf ("lacks %.1f MiB", advise_mib (bytes - row->choice.memory_bytes));
  if (gbs % all == 0)
    {
      row->refusal = g_steal_pointer (&why);
      return g_strdup ("no plan is legal");
    }
  return gbs < all ? g_strdup_printf ("gbs does not divide: %" G_GINT64_FORMAT " would", all)
                   : g_strdup_printf ("gbs does not divide: %" G_GINT64_FORMAT
                                      " or %" G_GINT64_FORMAT " would",
                                      gbs / all * all, (gbs / all + 1) * all);
}

static gboolean
answer_row (Sizes *self, Row *row, const char *price, GError **error)
{
  if (!cli_query_choose (&row->choice, self->question, &row->input, error)
      || !advise_query_ask (&row->choice, 1, &row->query, error)
      || !advise_training_find_price (price, &row->input, &row->price, error))
    return FALSE;
  row->best = advise_query_best (&row->query);
  self->has_price |= row->price > 0;
  if (!row->query.result.is_whole)
    row->note = g_strdup (row->best ? "interrupted: the best so far" : "interrupted");
  else if (!row->best)
    row->note = why_none (row);
  if (!row->best)
    return TRUE;
  const double devices = (double)plan_cluster_devices (row->input.cluster);
  row->seconds
      = self->tokens / (row->best->prediction.tokens_per_s_per_gpu * devices) / self->goodput;
  row->gpu_hours = row->seconds * devices / 3600;
  row->cost = row->gpu_hours * row->price;
  return TRUE;
}

static gboolean
is_same_stack (const Row *a, const Row *b)
{
  return a->input.plan.value[PLAN_STACK] == b->input.plan.value[PLAN_STACK];
}

static gboolean
is_same_cluster (const Row *a, const Row *b)
{
  g_autofree char *x = advise_cluster_name (a->input.cluster);
  g_autofree char *y = advise_cluster_name (b->input.cluster);
  return strcmp (x, y) == 0;
}

/* Sets each row's efficiency: tokens per second and GPU, relative to the smallest size of the same
 * cluster and stack that fits. */
static void
compare_efficiency (Sizes *self)
{
  for (guint i = 0; i < self->rows->len; i++)
    {
      Row *row = self->rows->pdata[i];
      const Row *least = row;
      for (guint j = 0; row->best && j < self->rows->len; j++)
        {
          const Row *other = self->rows->pdata[j];
          if (other->best && is_same_cluster (other, row) && is_same_stack (other, row)
              && plan_cluster_devices (other->input.cluster)
                     < plan_cluster_devices (least->input.cluster))
            least = other;
        }
      if (row->best)
        row->efficiency = row->best->prediction.tokens_per_s_per_gpu
                          / least->best->prediction.tokens_per_s_per_gpu;
    }
}

static double
speed (const Row *row)
{
  return row->best ? row->best->prediction.tokens_per_s_per_gpu
                         * (double)plan_cluster_devices (row->input.cluster)
                   : 0;
}

/* A row's price of a token, up to a factor that all rows share; the largest number where there is
 * no price, so that such rows come last. */
static double
token_price (const Row *row)
{
  return row->best && row->price > 0 ? row->price / row->best->prediction.tokens_per_s_per_gpu
                                     : G_MAXDOUBLE;
}

static int
compare_rows (gconstpointer a, gconstpointer b, gpointer by_price)
{
  const Row *x = *(Row *const *)a, *y = *(Row *const *)b;
  const double p = by_price ? token_price (x) : -speed (x),
               q = by_price ? token_price (y) : -speed (y);
  return p < q ? -1 : p > q;
}

static void
keep (Sizes *self)
{
  g_autofree CliKept *kept = g_new0 (CliKept, self->rows->len);
  guint n = 0;
  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = self->rows->pdata[i];
      if (row->best)
        kept[n++] = (CliKept){ row->input.model, row->input.cluster, &row->best->found->plan,
                               row->best->found->score, 0 };
    }
  cli_query_keep (self->question, kept, n);
  n = 0;
  for (guint i = 0; i < self->rows->len; i++)
    {
      Row *row = self->rows->pdata[i];
      row->id = row->best ? kept[n++].id : 0;
    }
}

static char *
stack_of (const Row *row)
{
  return plan_field_print (PLAN_STACK, row->input.plan.value[PLAN_STACK]);
}

static void
add_if (CliTable *table, gboolean is_known, double value, int decimals)
{
  if (is_known)
    cli_table_add_real (table, value, decimals);
  else
    cli_table_add (table, NULL);
}

static CliTable *
row_table (const Sizes *self, CliFormat format)
{
  static const CliColumn columns[]
      = { { "cluster", FALSE },     { "gpus", TRUE },       { "id", FALSE },
          { "stack", FALSE },       { "step_ms", TRUE },    { "uncertainty_pct", TRUE },
          { "tokens_per_s", TRUE }, { "mfu", TRUE },        { "device_mib", TRUE },
          { "days", TRUE },         { "gpu_hours", TRUE },  { "cost_usd", TRUE },
          { "goodput", TRUE },      { "efficiency", TRUE }, { "note", FALSE },
          { "plan", FALSE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = self->rows->pdata[i];
      const AdvisePrediction *p = row->best ? &row->best->prediction : NULL;
      const gboolean lasts = p && self->tokens > 0;
      g_autofree char *plan
          = p ? advise_query_differences (&row->best->found->plan, &row->input.plan) : NULL;
      g_autofree char *name = advise_cluster_name (row->input.cluster);
      g_autofree char *stack = stack_of (row);
      cli_table_add (table, name);
      cli_table_add_int (table, plan_cluster_devices (row->input.cluster));
      cli_query_add_id (table, row->id);
      cli_table_add (table, stack);
      add_if (table, p != NULL, p ? p->step_ms : 0, 1);
      add_if (table, p && p->error_range.pct >= 0, p ? p->error_range.pct : 0, 1);
      add_if (table, p != NULL, speed (row), 0);
      add_if (table, p != NULL, p ? p->mfu : 0, 3);
      add_if (table, p != NULL, p ? advise_mib (p->trace->memory.device) : 0, 1);
      add_if (table, lasts, row->seconds / 86400, 2);
      add_if (table, lasts, row->gpu_hours, 0);
      add_if (table, lasts && row->price > 0, row->cost, 0);
      add_if (table, lasts, self->goodput, 2);
      add_if (table, p != NULL, row->efficiency, 3);
      const gboolean is_long = row->refusal && format != CLI_FORMAT_TABLE;
      cli_table_add (table, is_long ? row->refusal->message : row->note);
      cli_table_add (table, plan);
    }
  return table;
}

/* The row with the least `value` of those within deadline and budget; of equal rows the fastest. */
static const Row *
least_of (const Sizes *self, double (*value) (const Row *row))
{
  const Row *best = NULL;
  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = self->rows->pdata[i];
      const gboolean is_good = row->best
                               && (self->deadline_s == 0 || row->seconds <= self->deadline_s)
                               && (self->budget == 0 || row->cost <= self->budget);
      if (is_good
          && (!best || value (row) < value (best)
              || (value (row) == value (best) && speed (row) > speed (best))))
        best = row;
    }
  return best;
}

static double
devices_of (const Row *row)
{
  return (double)plan_cluster_devices (row->input.cluster);
}

static double
cost_of (const Row *row)
{
  return row->cost;
}

static double
seconds_of (const Row *row)
{
  return row->seconds;
}

static void
print_answer (const Sizes *self, const char *what, const Row *row)
{
  g_autofree char *stack = stack_of (row);
  printf ("%s: %" G_GINT64_FORMAT " GPUs of %s", what, plan_cluster_devices (row->input.cluster),
          row->input.cluster->name);
  if (self->has_stacks)
    printf (", stack=%s", stack);
  printf (", %.2f days, %.0f GPU-hours", row->seconds / 86400, row->gpu_hours);
  if (row->price > 0)
    printf (", %.0f USD", row->cost);
  printf ("\n");
}

/* Prints the reasons that are too long for the table. */
static void
print_refusals (const Sizes *self)
{
  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = self->rows->pdata[i];
      g_autofree char *name = advise_cluster_name (row->input.cluster);
      g_autofree char *stack = stack_of (row);
      if (row->refusal)
        printf ("%s, %" G_GINT64_FORMAT " GPUs, stack=%s: %s\n", name,
                plan_cluster_devices (row->input.cluster), stack, row->refusal->message);
    }
}

/* Prints how much faster the fastest stack is than the second, on one cluster of one size, and
 * whether that is more than predictions err. */
static void
print_lead (const Sizes *self)
{
  const Row *first = self->rows->pdata[0], *second = NULL;
  for (guint i = 0; i < self->rows->len; i++)
    {
      const Row *row = self->rows->pdata[i];
      if (!is_same_cluster (row, first))
        return;
      if (!second && !is_same_stack (row, first))
        second = row;
    }
  if (!second || !second->best)
    return;
  const AdvisePrediction *p = &first->best->prediction, *q = &second->best->prediction;
  const double lead = 100 * (q->step_ms / p->step_ms - 1);
  g_autofree char *faster = stack_of (first), *slower = stack_of (second);
  printf ("stack=%s: %.1f %% faster than stack=%s", faster, lead, slower);
  if (MAX (p->error_range.pct, q->error_range.pct) > lead)
    printf (", which is less than such predictions err (uncertainty_pct): measure both");
  printf ("\n");
}

/* Prints what the table has no room for. */
static void
print_words (const Sizes *self, const CliSizes *asked)
{
  g_autofree char *left_out = advise_training_describe (self->goodput);
  printf ("\n");
  if (self->tokens > 0)
    printf ("%s\n", left_out);
  print_refusals (self);
  if (self->has_stacks && !asked->gpus)
    print_lead (self);
}

/* Prints which row meets the goals. FALSE if none fits within deadline and budget. */
static gboolean
answer (const Sizes *self, gboolean prints)
{
  const Row *fewest = least_of (self, devices_of);
  if (self->tokens == 0 || !fewest || !prints)
    return fewest != NULL;
  if (self->deadline_s > 0)
    print_answer (self, "fewest that keep the deadline", fewest);
  if (self->has_price)
    print_answer (self, self->deadline_s > 0 ? "cheapest that keep it" : "cheapest",
                  least_of (self, cost_of));
  if (self->deadline_s == 0)
    print_answer (self, self->budget > 0 ? "fastest within the budget" : "fastest",
                  least_of (self, seconds_of));
  return TRUE;
}

static gboolean
read_asked (Sizes *self, const CliSizes *asked, GError **error)
{
  const gboolean wants_tokens
      = (asked->deadline || asked->budget || asked->goodput) && !asked->tokens;
  if (wants_tokens || (asked->budget && !asked->price))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   wants_tokens ? "--tokens is needed: how many the run trains on"
                                : "--price is needed: what a device costs an hour");
      return FALSE;
    }
  return (!asked->tokens || advise_training_parse_tokens (asked->tokens, &self->tokens, error))
         && advise_training_parse_goodput (asked->goodput, &self->goodput, error)
         && (!asked->deadline
             || advise_training_parse_duration (asked->deadline, &self->deadline_s, error))
         && (!asked->budget
             || plan_units_parse_real (asked->budget, "--budget", 1e-6, 1e15, &self->budget,
                                       error));
}

/* Checks prices before the searches, which may take long. */
static gboolean
check_price (const Sizes *self, const char *price, GError **error)
{
  g_autofree const AdviseInput **inputs = g_new (const AdviseInput *, self->rows->len);
  double unused;
  for (guint i = 0; i < self->rows->len; i++)
    inputs[i] = &((const Row *)self->rows->pdata[i])->input;
  return !price
         || (advise_training_find_price (price, inputs[0], &unused, error)
             && advise_training_check_price (price, inputs, self->rows->len, error));
}

gboolean
cli_query_sizes (const AdviseQuestion *question, const CliSizes *asked, const AdviseInput *input,
                 CliFormat format, GError **error)
{
  AdviseQuestion best = *question;
  g_auto (Sizes) self = { .question = &best };
  best.front = 0; /* only the best of each is needed */
  if (!read_asked (&self, asked, error) || !add_rows (&self, asked, input, error))
    return FALSE;
  if (!check_price (&self, asked->price, error))
    return FALSE;
  for (guint i = 0; i < self.rows->len; i++)
    if (!answer_row (&self, self.rows->pdata[i], asked->price, error))
      return FALSE;
  compare_efficiency (&self);
  if ((asked->clusters || asked->stacks) && !asked->gpus)
    g_ptr_array_sort_with_data (self.rows, compare_rows, GINT_TO_POINTER (self.has_price));
  keep (&self);
  g_autoptr (CliTable) table = row_table (&self, format);
  cli_table_print (table, format);
  if (format == CLI_FORMAT_TABLE)
    print_words (&self, asked);
  if (cli_watch_is_interrupted () || answer (&self, format == CLI_FORMAT_TABLE))
    return TRUE;
  if (self.deadline_s > 0 || self.budget > 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                 "none of these keeps the %s: ask for more sizes, or give it more",
                 self.deadline_s > 0 ? "deadline" : "budget");
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                 "none of these has a plan that fits: each row's note says what it lacks");
  return FALSE;
}
