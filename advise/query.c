/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/query.h"

#include "advise/adjustments.h"
#include "advise/score.h"
#include "advise/uncertainty.h"
#include "advise/workspaces.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/model/layer-kinds.h"

#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* The field of "FIELD=VALUE". */
static gboolean
parse_set (const char *text, PlanField *out_field, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (text, "=", 2);
  return plan_field_parse (halves[0], out_field, error);
}

/* Whether --set leaves a field none of these values; says so. */
static gboolean
contradicts_set (const AdviseChoice *self, PlanField field, const GArray *values, GError **error)
{
  const gint64 set = self->input->plan.value[field];
  for (guint i = 0; i < values->len; i++)
    if (!self->pinned[field] || g_array_index (values, gint64, i) == set)
      return FALSE;
  g_autofree char *shown = plan_field_print (field, set);
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INVALID,
      "--only %s: it is set to %s, and so no other value is searched: leave one of the two out",
      plan_field_name (field), shown);
  return TRUE;
}

/* Restricts the space to the values of "FIELD=V1,V2". */
static gboolean
restrict_to (const AdviseChoice *self, PlanSpace *space, const char *text, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (text, "=", 2);
  PlanField field;
  if (!halves[0] || !halves[1] || !*halves[1])
    {
      g_autofree char *shown = plan_text_quote (text);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--only: %s is not FIELD=VALUE[,VALUE…]",
                   shown);
      return FALSE;
    }
  if (!plan_field_parse (halves[0], &field, error))
    return FALSE;
  g_auto (GStrv) words = g_strsplit (halves[1], ",", -1);
  g_autoptr (GArray) values = g_array_new (FALSE, FALSE, sizeof (gint64));
  for (char **w = words; *w; w++)
    {
      Plan plan;
      plan_init (&plan);
      if (!plan_set (&plan, halves[0], *w, error))
        return FALSE;
      g_array_append_val (values, plan.value[field]);
    }
  if (contradicts_set (self, field, values, error))
    return FALSE;
  return plan_space_restrict (space, field, (const gint64 *)(gpointer)values->data, values->len,
                              error);
}

#define LEAST_MEMORY PLAN_MIB /* a smaller limit is refused: 80 without a unit was meant in GB */

/* The memory that a plan may take on a device of this cluster. */
static gboolean
read_memory (const AdviseQuestion *question, const PlanCluster *cluster, guint64 *out_bytes,
             GError **error)
{
  guint64 bytes = cluster->memory_bytes;
  double percent = 0;
  if (question->memory && !plan_units_parse_size (question->memory, "--memory", &bytes, error))
    return FALSE;
  if (question->memory && bytes < LEAST_MEMORY)
    {
      g_autofree char *shown = plan_text_quote (question->memory);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--memory: %s is less than any device has: write for example 80GB or 72GiB",
                   shown);
      return FALSE;
    }
  if (question->headroom
      && !plan_units_parse_percent (question->headroom, "--headroom", 0, 99, &percent, error))
    return FALSE;
  *out_bytes = (guint64)((double)bytes * (100 - percent) / 100);
  return TRUE;
}

guint64
advise_choice_needed_bytes (const AdviseChoice *self, const AdvisePrediction *prediction)
{
  const PlanMemory *memory = &prediction->trace->memory;
  const AdviseMemoryError error
      = advise_memory_error (self->input->adjustments, self->input->cluster, prediction->of->stack);
  return advise_needed_bytes (&error, self->p_fits, memory->device, memory->allocated);
}

gboolean
advise_choice_init (AdviseChoice *self, const AdviseQuestion *question, const AdviseInput *input,
                    GError **error)
{
  AdviseChoice choice = { .question = question, .input = input };
  Plan initial;
  plan_init (&initial);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    choice.pinned[f] = input->plan.value[f] != initial.value[f];
  for (char **s = question->set; s && *s; s++)
    {
      PlanField field;
      if (!parse_set (*s, &field, error))
        return FALSE;
      choice.pinned[field] = TRUE;
    }
  if ((question->allow && !plan_space_allow_parse (question->allow, &choice.allow, error))
      || !read_memory (question, input->cluster, &choice.memory_bytes, error)
      || !advise_p_fits_parse (question->p_fits, &choice.p_fits, error))
    return FALSE;
  *self = choice;
  return TRUE;
}

PlanSpace *
advise_choice_space (const AdviseChoice *self, GError **error)
{
  const AdviseInput *input = self->input;
  g_autoptr (PlanSpace) space
      = plan_space_new (input->model, input->cluster, &input->plan, self->pinned, self->allow);
  for (char **o = self->question->only; o && *o; o++)
    if (!restrict_to (self, space, *o, error))
      return NULL;
  return g_steal_pointer (&space);
}

gboolean
advise_choice_can_offload (const AdviseChoice *self, const PlanSpace *space, GError **error)
{
  static const PlanFact facts[] = { PLAN_FACT_HOST_BANDWIDTH, PLAN_FACT_HOST_MEMORY_BANDWIDTH };
  const gint64 whole = 1000000;
  if (self->input->cluster->kind != PLAN_DEVICE_GPU
      || !plan_space_chooses (space, PLAN_OFFLOAD_OPTIMIZER, whole))
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (facts); i++)
    if (!plan_cluster_knows (self->input->cluster, facts[i]))
      {
        sim_cost_refuse (self->input->cluster, facts[i], error);
        return FALSE;
      }
  return TRUE;
}

static gboolean
same_cost (const PlanFound *a, const PlanFound *b)
{
  return a->score.time_ns == b->score.time_ns && a->score.memory_bytes == b->score.memory_bytes;
}

static void
answer_clear (gpointer data)
{
  advise_prediction_clear (&((AdviseAnswer *)data)->prediction);
}

/* Predictions of answers, made by several threads. */
typedef struct
{
  const AdviseInput *input;
  GArray *answers;
  GError **errors; /* one per answer */
  gint next;
} Predicting;

static gpointer
predict_thread (gpointer data)
{
  Predicting *self = data;
  for (guint i; (i = (guint)g_atomic_int_add (&self->next, 1)) < self->answers->len;)
    {
      AdviseAnswer *answer = &g_array_index (self->answers, AdviseAnswer, i);
      AdviseInput chosen = *self->input;
      chosen.plan = answer->found->plan;
      advise_predict (&chosen, &answer->prediction, &self->errors[i]);
    }
  return NULL;
}

static gboolean
predict_answers (Predicting *work, GError **error)
{
  GArray *answers = work->answers;
  const guint n = MIN (answers->len, g_get_num_processors ());
  g_autofree GThread **threads = g_new (GThread *, n);
  g_autofree GError **errors = g_new0 (GError *, answers->len);
  work->errors = errors;
  for (guint i = 0; i < n; i++)
    threads[i] = g_thread_new ("predict", predict_thread, work);
  for (guint i = 0; i < n; i++)
    g_thread_join (threads[i]);
  gboolean ok = TRUE;
  for (guint i = 0; i < answers->len; i++)
    if (errors[i] && ok)
      {
        g_propagate_error (error, errors[i]);
        ok = FALSE;
      }
    else
      g_clear_error (&errors[i]);
  return ok;
}

/* Which of the found plans may be answers: those that are surely found, or those of the front only;
 * the caller frees. */
static gboolean *
find_eligible (const PlanSearchResult *result, gboolean of_front)
{
  gboolean *is_eligible = g_new0 (gboolean, result->found->len + 1);
  g_autoptr (GArray) front = plan_search_front (result);
  for (guint i = 0; i < result->found->len; i++)
    is_eligible[i]
        = !of_front
          && g_array_index (result->found, PlanFound, i).score.time_ns <= result->worst_ns;
  for (guint i = 0; i < front->len && of_front; i++)
    is_eligible[g_array_index (front, guint, i)] = TRUE;
  return is_eligible;
}

/* A switch that saves less than this share of the step's time is not worth its line in a script. */
#define LEAST_SAVING 2e-4

static gboolean
is_switch (PlanField field)
{
  const char *const *names = plan_field_names (field);
  return names && names[0] && g_str_equal (names[0], "off");
}

/* Sets a switch of an answer back to the user's value. FALSE: the answer is left as it is,
 * because that plan is illegal or equivalent, needs more memory, or is slower by more than
 * LEAST_SAVING. */
static gboolean
set_back (const AdviseChoice *choice, AdviseScorer *scorer, PlanFound *found, PlanField field)
{
  const AdviseInput *input = choice->input;
  const gint64 enough_ns
      = found->score.time_ns + (gint64)((double)found->score.time_ns * LEAST_SAVING);
  Plan plain = found->plan;
  PlanScore score;
  plain.value[field] = input->plan.value[field];
  g_autoptr (PlanCase) of
      = plan_case_new (input->model, input->cluster, &plain, advise_workspaces (input), NULL);
  if (!of || plan_search_key_equal (&of->plan, &found->plan)
      || !advise_scorer_score_within (scorer, of, enough_ns, found->score.memory_bytes, &score))
    return FALSE;
  found->plan = of->plan;
  found->score = score;
  return TRUE;
}

/* Sets the switches of an answer back that the search turned on or off for next to nothing, so that
 * of plans as good as each other the one nearest to the user's is named. The last fields come
 * first, since some switches need those before them. */
static void
make_plain (const AdviseChoice *choice, AdviseScorer *scorer, PlanFound *found)
{
  for (PlanField f = PLAN_N_FIELDS; f-- > 0;)
    if (!choice->pinned[f] && found->plan.value[f] != choice->input->plan.value[f] && is_switch (f))
      set_back (choice, scorer, found, f);
}

/* Whether the time of a found plan can be told from that of every answer so far. */
static gboolean
is_apart_from_all (const GArray *answers, const PlanFound *found, double apart)
{
  const gint64 ns = found->score.time_ns;
  for (guint i = 0; i < answers->len; i++)
    {
      const gint64 other_ns = g_array_index (answers, AdviseAnswer, i).found->score.time_ns;
      if (!plan_search_is_apart (apart, MIN (ns, other_ns), MAX (ns, other_ns)))
        return FALSE;
    }
  return TRUE;
}

/* Answers by their time: a plan that was set back may have become faster than one before it. */
static gint
compare_answers (gconstpointer a, gconstpointer b)
{
  const PlanFound *x = ((const AdviseAnswer *)a)->found, *y = ((const AdviseAnswer *)b)->found;
  if (x->score.time_ns != y->score.time_ns)
    return x->score.time_ns < y->score.time_ns ? -1 : 1;
  return x < y ? -1 : x > y;
}

/* The K best distinct answers, best first; fewer where setting back makes one equal to another,
 * which is dropped. Plans of equal cost are one answer, with the fields in which they differ. */
static GArray *
take_answers (PlanSearchResult *result, const AdviseChoice *choice, AdviseScorer *scorer, guint k)
{
  const double apart = choice->question->apart / 100;
  g_autofree gboolean *is_eligible = find_eligible (result, 100 * apart > ADVISE_NEAR);
  g_autoptr (GArray) answers = g_array_new (FALSE, TRUE, sizeof (AdviseAnswer));
  g_array_set_clear_func (answers, answer_clear);
  for (guint i = 0; i < result->found->len && answers->len < k;)
    {
      AdviseAnswer answer = { .found = &g_array_index (result->found, PlanFound, i) };
      const PlanFound before = *answer.found;
      if (!is_eligible[i] || !is_apart_from_all (answers, answer.found, apart))
        {
          i++;
          continue;
        }
      for (; i < result->found->len; i++)
        {
          const PlanFound *other = &g_array_index (result->found, PlanFound, i);
          if (!same_cost (answer.found, other))
            break;
          answer.n_equal++;
          for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
            answer.is_free[f] |= other->plan.value[f] != answer.found->plan.value[f];
        }
      if (apart > LEAST_SAVING)
        make_plain (choice, scorer, answer.found);
      if (is_apart_from_all (answers, answer.found, apart))
        g_array_append_val (answers, answer);
      else
        *answer.found = before;
    }
  g_array_sort (answers, compare_answers);
  return g_steal_pointer (&answers);
}

void
advise_query_clear (AdviseQuery *self)
{
  plan_search_result_clear (&self->result);
  g_clear_pointer (&self->answers, g_array_unref);
}

/* Searches for the K best answers. Where some of them have become equal to others it searches
 * again, each time for K plans more, until there are enough or all plans are found. */
static void
search_answers (PlanSearch *search, const AdviseChoice *choice, AdviseScorer *scorer, guint k,
                AdviseQuery *self)
{
  const gint64 start_us = g_get_monotonic_time ();
  const gboolean is_coarse = choice->question->apart > ADVISE_NEAR;
  for (search->best = is_coarse ? 1 : k;; search->best += k)
    {
      advise_query_clear (self);
      plan_search_run (search, &self->result);
      self->n_simulated = advise_scorer_n_simulated (scorer);
      self->seconds = 1e-6 * (double)(g_get_monotonic_time () - start_us);
      self->answers = take_answers (&self->result, choice, scorer, k);
      if (self->answers->len >= k || is_coarse || !self->result.is_whole
          || self->result.worst_ns == G_MAXINT64)
        return;
    }
}

#define KEPT_BYTES (64 << 20)
#define USUAL_BYTES (32 << 20)

/* Keeps malloc from returning memory to the system between schedules, which are megabytes and come
 * by the thousand; it would have to be taken and zeroed again each time. */
static void
keep_memory (void)
{
#ifdef __GLIBC__
  mallopt (M_TRIM_THRESHOLD, KEPT_BYTES);
  mallopt (M_MMAP_THRESHOLD, USUAL_BYTES);
#endif
}

gboolean
advise_query_ask (const AdviseChoice *choice, guint top, AdviseQuery *out, GError **error)
{
  g_auto (AdviseQuery) self = { 0 };
  g_autoptr (PlanSpace) space = advise_choice_space (choice, error);
  if (!space)
    return FALSE;
  const AdviseInput *input = choice->input;
  if (!advise_choice_can_offload (choice, space, error))
    {
      g_prefix_error (error, "--allow offload: ");
      return FALSE;
    }
  if (plan_cluster_devices (input->cluster) > plan_cluster_linked_devices (input->cluster)
      && !plan_cluster_knows (input->cluster, PLAN_FACT_NIC_BANDWIDTH))
    {
      sim_cost_refuse (input->cluster, PLAN_FACT_NIC_BANDWIDTH, error);
      return FALSE;
    }
  g_autoptr (AdviseScorer) scorer = advise_scorer_new (input, choice->p_fits);
  PlanSearch search = { .model = input->model,
                        .cluster = input->cluster,
                        .asked = advise_workspaces (input),
                        .space = space,
                        .memory_bytes = choice->memory_bytes,
                        .apart = choice->question->apart / 100,
                        .threads = g_get_num_processors (),
                        .front = 1 + choice->question->front / 100,
                        .score = advise_scorer_score,
                        .floor = advise_scorer_floor,
                        .plan_floor = advise_scorer_plan_floor,
                        .progress = choice->progress,
                        .user_data = scorer };
  keep_memory ();
  search_answers (&search, choice, scorer, top, &self);
  if (choice->progress)
    choice->progress (0, 0, scorer);
  Predicting work = { .input = input, .answers = self.answers };
  if (!predict_answers (&work, error))
    return FALSE;
  *out = self;
  self = (AdviseQuery){ 0 };
  return TRUE;
}

/* Whether the question fixes a field, or lists the values to search. */
static gboolean
says (const AdviseChoice *choice, PlanField field)
{
  gboolean says = choice->pinned[field];
  for (char **o = choice->question->only; o && *o; o++)
    {
      PlanField other;
      says = says || (parse_set (*o, &other, NULL) && other == field);
    }
  return says;
}

#define N_WAYS 2

/* The modules of each layer that always have as many rows, and which of them mix tokens. */
static void
find_graphs (const PlanModel *model, gint64 seq, gint64 *out_ways)
{
  gint64 layers[PLAN_N_LAYER_KINDS], mixing = 0, feeding = 0;
  plan_model_count_kinds (model, seq, layers);
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    {
      const gboolean is_ssm = kind & PLAN_LAYER_RECURRENT && model->ssm.heads > 0;
      if (layers[kind] > 0 && plan_layer_mixes (kind))
        mixing |= 1 << (is_ssm ? PLAN_GRAPH_MODULES_MAMBA : PLAN_GRAPH_MODULES_ATTN);
      if (layers[kind] > 0 && plan_layer_feeds (kind))
        feeding |= 1 << (kind & PLAN_LAYER_EXPERTS ? PLAN_GRAPH_MODULES_MOE_ROUTER
                                                   : PLAN_GRAPH_MODULES_MLP);
    }
  out_ways[0] = mixing;
  out_ways[1] = mixing | feeding;
}

/* Changes a plan to one of the ways of a trial. */
static void
change_to (AdviseTrialKind kind, guint way, const gint64 *graphs, Plan *plan)
{
  if (kind == ADVISE_TRIAL_OVERLAP)
    {
      plan->value[PLAN_EP_OVERLAP] = PLAN_EP_OVERLAP_ON;
      plan->value[PLAN_EP_DELAY_WGRAD] = way ? PLAN_EP_DELAY_WGRAD_ON : PLAN_EP_DELAY_WGRAD_OFF;
    }
  else
    plan->value[PLAN_GRAPH_MODULES] = graphs[way];
}

/* Tries a plan in the ways of a trial, and notes one that fits and is faster than the best so far.
 * Returns whether such a plan is legal. */
static gboolean
try_plan (const AdviseChoice *choice, AdviseScorer *scorer, AdviseTrialKind kind, const Plan *found,
          PlanFound *best)
{
  const AdviseInput *input = choice->input;
  gint64 graphs[N_WAYS];
  gboolean is_legal = FALSE;
  find_graphs (input->model, found->value[PLAN_SEQ], graphs);
  for (guint way = 0; way < N_WAYS; way++)
    {
      Plan plan = *found;
      PlanScore score;
      change_to (kind, way, graphs, &plan);
      g_autoptr (PlanCase) of
          = plan_case_new (input->model, input->cluster, &plan, advise_workspaces (input), NULL);
      is_legal = is_legal || of;
      if (!of
          || !advise_scorer_score_within (scorer, of, best->score.time_ns - 1, choice->memory_bytes,
                                          &score))
        continue;
      best->plan = of->plan;
      best->score = score;
    }
  return is_legal;
}

#define MOST_TRIED 32

static void
try_all (const AdviseChoice *choice, AdviseScorer *scorer, AdviseQuery *self, AdviseTrialKind kind)
{
  const PlanFound *first = advise_query_best (self)->found;
  AdviseTrial *trial = &self->trials[kind];
  g_autoptr (GArray) front = plan_search_front (&self->result);
  PlanFound best = { .score = first->score };
  for (guint i = 0; i < self->answers->len && trial->n_tried < MOST_TRIED; i++)
    trial->n_tried += try_plan (choice, scorer, kind,
                                &g_array_index (self->answers, AdviseAnswer, i).found->plan, &best);
  for (guint i = 0; i < front->len && trial->n_tried < MOST_TRIED; i++)
    trial->n_tried += try_plan (
        choice, scorer, kind,
        &g_array_index (self->result.found, PlanFound, g_array_index (front, guint, i)).plan,
        &best);
  if (best.score.time_ns < first->score.time_ns)
    trial->faster = best;
}

void
advise_query_try (const AdviseChoice *choice, AdviseQuery *self)
{
  if (!advise_query_best (self) || !self->result.is_whole)
    return;
  g_autoptr (AdviseScorer) scorer = advise_scorer_new (choice->input, choice->p_fits);
  if (choice->input->model->experts > 0 && !says (choice, PLAN_EP_OVERLAP))
    try_all (choice, scorer, self, ADVISE_TRIAL_OVERLAP);
  if (!says (choice, PLAN_GRAPH_MODULES))
    try_all (choice, scorer, self, ADVISE_TRIAL_GRAPHS);
}

/* The least relative difference of two plans' times that predictions can tell. It is far smaller
 * than the error of one prediction, because plans for one task have most of their error in
 * common. */
static double
least_difference (const AdviseInput *input)
{
  const SimAdjustments *set = input->adjustments, *shipped = advise_adjustments_shipped ();
  const double own = set ? set->distances[SIM_DISTANCE_CHOICE].pct : 0;
  return own > 0 ? own / 100 : shipped ? shipped->distances[SIM_DISTANCE_CHOICE].pct / 100 : 0;
}

guint
advise_query_group (const AdviseQuery *self, const AdviseInput *input, guint answer)
{
  const double least = least_difference (input);
  gint64 first_ns = -1;
  guint group = 0;
  for (guint i = 0; i <= answer && i < self->answers->len; i++)
    {
      const gint64 ns = g_array_index (self->answers, AdviseAnswer, i).found->score.time_ns;
      if (!plan_search_is_apart (least, first_ns, ns))
        continue;
      first_ns = ns;
      group++;
    }
  return group;
}

const AdviseAnswer *
advise_query_best (const AdviseQuery *self)
{
  return self->answers->len > 0 ? &g_array_index (self->answers, AdviseAnswer, 0) : NULL;
}

const char *
advise_exchanges_of (const Plan *plan)
{
  static const char *const names[]
      = { "tensor",  "tensor",         "context",         "tensor+context",
          "experts", "tensor+experts", "context+experts", "tensor+context+experts" };
  const gint64 *value = plan->value;
  return names[(value[PLAN_TP] > 1) + 2 * (value[PLAN_CP] > 1)
               + 4 * (value[PLAN_EP] > 1 || value[PLAN_ETP] > 1)];
}

const char *
advise_query_bound_by (const AdvisePrediction *prediction)
{
  const PlanTrace *t = prediction->trace;
  const struct
  {
    const char *name;
    gint64 ns;
  } parts[] = { { "gather", t->exposed_gather_ns },
                { "reduce", t->exposed_reduce_ns },
                { advise_exchanges_of (&prediction->of->plan), t->exposed_tensor_ns },
                { "copies", t->exposed_copy_ns },
                { "host", t->host_ns },
                { "pipeline", t->idle_ns } };
  const char *name = "compute";
  gint64 most = t->step_ns / 10;
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    if (parts[i].ns > most)
      {
        name = parts[i].name;
        most = parts[i].ns;
      }
  return name;
}

/* Whether a plan does without the field's feature, so that the field has its default and says
 * nothing. */
static gboolean
is_moot (const Plan *plan, PlanField field)
{
  const gint64 recompute = plan->value[PLAN_RECOMPUTE];
  switch (field)
    {
    case PLAN_RECOMPUTE_MODULES:
      return recompute != PLAN_RECOMPUTE_SELECTIVE;
    case PLAN_RECOMPUTE_METHOD:
    case PLAN_RECOMPUTE_LAYERS:
      return recompute != PLAN_RECOMPUTE_FULL;
    case PLAN_VPP:
    case PLAN_PP_GROUP:
    case PLAN_PP_FIRST_LAYERS:
    case PLAN_PP_LAST_LAYERS:
    case PLAN_PP_COUNT_EMBEDDING:
    case PLAN_PP_COUNT_LOSS:
    case PLAN_PP_LAST_SHORT:
    case PLAN_PP_LAYOUT:
      return plan->value[PLAN_PP] == 1;
    case PLAN_OVERLAP_PARAM_GATHER:
      return plan->value[PLAN_STRATEGY] == PLAN_STRATEGY_NO_SHARD;
    case PLAN_OUTER_STRATEGY:
      return plan->value[PLAN_DP_OUTER] == 1;
    case PLAN_SP:
      return plan->value[PLAN_TP] == 1;
    default:
      return FALSE;
    }
}

static char *
list_differences (const Plan *a, const Plan *b, gboolean all)
{
  GString *text = g_string_new (NULL);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (a->value[f] != b->value[f] && ((all && b->value[f] != PLAN_UNSET) || !is_moot (a, f)))
      {
        g_autofree char *value = plan_field_print (f, a->value[f]);
        g_string_append_printf (text, "%s%s=%s", text->len ? ", " : "", plan_field_name (f), value);
      }
  return g_string_free (text, FALSE);
}

char *
advise_query_differences (const Plan *a, const Plan *b)
{
  return list_differences (a, b, FALSE);
}

char *
advise_query_changes (const Plan *a, const Plan *b)
{
  return list_differences (a, b, TRUE);
}
