/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for advice as another program would: it links libadvise.a and the libraries below it, and
 * answers and progress appear only where it wants them. */
#include "config.h"

#include "advise/adjustments.h"
#include "advise/explain-memory.h"
#include "advise/explain-time.h"
#include "advise/query.h"
#include "advise/uncertainty.h"
#include "planner/base/error.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct
{
  AdviseInput input;
  AdviseChoice choice;
} Asked;

static const AdviseQuestion question = { .top = 3, .apart = ADVISE_APART, .front = 30 };

static void
asked_init (Asked *self, const char *cluster)
{
  *self = (Asked){ 0 };
  plan_init (&self->input.plan);
  self->input.model = plan_model_new ("llama3-8b", NULL);
  self->input.cluster = plan_cluster_new (cluster, NULL);
  self->input.db = ":memory:";
  self->input.adjustments = advise_adjustments_shipped ();
  self->input.plan.value[PLAN_GBS] = 64;
  self->input.plan.value[PLAN_SEQ] = 4096;
  ck_assert (advise_choice_init (&self->choice, &question, &self->input, NULL));
}

static void
asked_clear (Asked *self)
{
  advise_input_clear (&self->input);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Asked, asked_clear)

static guint64 n_told, n_ends;

static gboolean
count_progress (guint64 done, guint64 total, gpointer user_data)
{
  n_told++;
  n_ends += total == 0;
  return TRUE;
}

static gboolean
stop_at_once (guint64 done, guint64 total, gpointer user_data)
{
  return FALSE;
}

/* Runs `ask` with this process's standard output and error in a file, and returns how many bytes
 * are in it. */
static gint64
count_printed (void (*ask) (void))
{
  char name[] = "/tmp/test-advise-XXXXXX";
  const int file = mkstemp (name), out = dup (STDOUT_FILENO), err = dup (STDERR_FILENO);
  dup2 (file, STDOUT_FILENO);
  dup2 (file, STDERR_FILENO);
  ask ();
  fflush (NULL);
  dup2 (out, STDOUT_FILENO);
  dup2 (err, STDERR_FILENO);
  const gint64 length = lseek (file, 0, SEEK_END);
  close (file);
  close (out);
  close (err);
  unlink (name);
  return length;
}

static void
ask_and_check (void)
{
  g_auto (Asked) asked = { 0 };
  g_auto (AdviseQuery) query = { 0 };
  g_autoptr (GError) error = NULL;
  asked_init (&asked, "dgx-h100:1");
  asked.choice.progress = count_progress;
  ck_assert (advise_query_ask (&asked.choice, 3, &query, &error));
  ck_assert_uint_gt (query.answers->len, 1);
  for (guint i = 0; i < query.answers->len; i++)
    {
      const AdviseAnswer *answer = &g_array_index (query.answers, AdviseAnswer, i);
      AdviseInput alone = asked.input;
      g_auto (AdvisePrediction) again = { 0 };
      alone.plan = answer->found->plan;
      ck_assert (advise_predict (&alone, &again, &error));
      ck_assert_double_eq (again.step_ms, answer->prediction.step_ms);
      ck_assert_double_ge (again.p_fits, ADVISE_P_FITS);
    }
}

START_TEST (answers_without_a_word)
{
  ck_assert_int_eq (count_printed (ask_and_check), 0);
  ck_assert_uint_gt (n_told, 1);
  ck_assert_uint_eq (n_ends, 1);
}
END_TEST

START_TEST (whoever_asks_may_stop)
{
  g_auto (Asked) asked = { 0 };
  g_autoptr (GError) error = NULL;
  Plan least;
  guint64 bytes;
  asked_init (&asked, "dgx-h100:1");
  asked.choice.progress = stop_at_once;
  ck_assert (!advise_query_least (&asked.choice, &least, &bytes, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_STOPPED));
}
END_TEST

/* The buffers add up to the prediction's categories, and the lines to the device's memory. */
START_TEST (explains_all_memory)
{
  static const char *const plans[] = {
    "gbs=64\nseq=4096",
    "gbs=64\nseq=4096\nstrategy=optim_grads\ntp=2",
    "gbs=64\nseq=4096\nstack=fsdp2\nrecompute=full",
    "gbs=64\nseq=4096\nstack=megatron\nstrategy=optim\ntp=2\npp=2\nvpp=2",
    "gbs=64\nseq=4096\nstack=nanotron\nstrategy=optim\npp=4",
    "gbs=64\nseq=4096\nstack=native\nstrategy=no_shard\nmbs=2",
  };
  for (guint i = 0; i < G_N_ELEMENTS (plans); i++)
    {
      g_auto (Asked) asked = { 0 };
      g_auto (AdvisePrediction) p = { 0 };
      g_autoptr (GError) error = NULL;
      guint64 at_peak[PLAN_N_CATEGORIES] = { 0 }, resting[PLAN_N_CATEGORIES] = { 0 }, all = 0;
      asked_init (&asked, "dgx-h100:1");
      ck_assert (plan_parse (plans[i], "plan", &asked.input.plan, &error));
      ck_assert_msg (advise_predict (&asked.input, &p, &error), "%s: %s", plans[i],
                     error ? error->message : "");
      g_autoptr (GArray) residents = advise_residents (&p);
      g_autoptr (GArray) lines = advise_explain_memory (&p);
      for (guint r = 0; r < residents->len; r++)
        {
          const AdviseResident *one = &g_array_index (residents, AdviseResident, r);
          at_peak[one->category] += one->each * (guint64)one->at_peak;
          resting[one->category] += one->each * (guint64)one->resting;
        }
      for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
        {
          ck_assert_msg (at_peak[c] == p.trace->memory.by_category[c], "%s: %s", plans[i],
                         plan_category_name (c));
          ck_assert_uint_eq (resting[c], p.trace->memory.resting[c]);
        }
      for (guint l = 0; l < lines->len; l++)
        all += g_array_index (lines, AdviseMemoryLine, l).bytes;
      ck_assert_msg (all == p.trace->memory.device, "%s", plans[i]);
    }
}
END_TEST

/* Ops on the compute stream take together what the parts of compute do, each of them at most at the
 * rate of the data sheet. */
START_TEST (explains_all_compute)
{
  static const char *const plans[]
      = { "gbs=64\nseq=4096", "gbs=64\nseq=4096\nstack=fsdp2\nrecompute=full",
          "gbs=64\nseq=4096\nstack=megatron\nstrategy=optim\ntp=2" };
  for (guint i = 0; i < G_N_ELEMENTS (plans); i++)
    {
      g_auto (Asked) asked = { 0 };
      g_auto (AdvisePrediction) p = { 0 };
      g_autoptr (GError) error = NULL;
      gint64 found = 0, expected;
      asked_init (&asked, "dgx-h100:1");
      ck_assert (plan_parse (plans[i], "plan", &asked.input.plan, &error));
      ck_assert (advise_predict (&asked.input, &p, &error));
      g_autoptr (GArray) times = advise_explain_time (&asked.input, &p, &error);
      ck_assert_ptr_nonnull (times);
      for (guint t = 0; t < times->len; t++)
        {
          const AdviseOpTime *one = &g_array_index (times, AdviseOpTime, t);
          found += g_str_equal (one->stream, "compute") ? one->total_ns : 0;
          ck_assert (one->flops <= 0
                     || 1e9 * one->flops * (double)one->times
                            < one->peak_flops * (double)one->total_ns);
        }
      expected = p.split.recomputed.ns;
      for (guint w = 0; w < PLAN_N_WORKS; w++)
        expected += p.split.work[w].ns;
      ck_assert_int_eq (found, expected);
    }
}
END_TEST

/* Also for interleaved stages, where the times of single ops are not known. */
START_TEST (splits_compute_of_stages)
{
  static const char *const plans[]
      = { "gbs=64\nseq=4096\nstack=megatron\nstrategy=optim\npp=4",
          "gbs=64\nseq=4096\nstack=megatron\nstrategy=optim\npp=4\nvpp=2" };
  for (guint i = 0; i < G_N_ELEMENTS (plans); i++)
    {
      g_auto (Asked) asked = { 0 };
      g_auto (AdvisePrediction) p = { 0 };
      g_autoptr (GError) error = NULL;
      double provenance = 0;
      asked_init (&asked, "dgx-h100:1");
      ck_assert (plan_parse (plans[i], "plan", &asked.input.plan, &error));
      ck_assert (advise_predict (&asked.input, &p, &error));
      gint64 found = p.split.recomputed.ns;
      for (guint w = 0; w < PLAN_N_WORKS; w++)
        found += p.split.work[w].ns;
      ck_assert_int_le (ABS (found - p.trace->compute_ns),
                        (gint64)plan_schedule_n_nodes (p.schedule));
      for (guint k = 0; k < SIM_N_PROVENANCES; k++)
        provenance += p.provenance_pct[k];
      ck_assert_double_eq_tol (provenance, 100, 1e-6);
      ck_assert_int_gt (p.split.work[PLAN_WORK_GEMM].ns, p.trace->compute_ns / 2);
    }
}
END_TEST

/* Setting switches back would make the fourth of these answers equal the first one. */
START_TEST (answers_are_distinct_and_in_order)
{
  g_auto (GStrv) only = g_strsplit ("tp=1,4 mbs=1 cp=1 dp_outer=1 recompute=none,full", " ", -1);
  const AdviseQuestion narrow = { .top = 5, .apart = ADVISE_APART, .front = 2, .only = only };
  g_auto (Asked) asked = { 0 };
  g_auto (AdviseQuery) query = { 0 };
  asked_init (&asked, "dgx-h100:8");
  plan_model_free (asked.input.model);
  asked.input.model = plan_model_new ("llama3-70b", NULL);
  asked.input.plan.value[PLAN_SEQ] = 8192;
  ck_assert (advise_choice_init (&asked.choice, &narrow, &asked.input, NULL));
  ck_assert (advise_query_ask (&asked.choice, 5, &query, NULL));
  ck_assert_uint_eq (query.answers->len, 5);
  for (guint i = 1; i < query.answers->len; i++)
    {
      const PlanFound *before = g_array_index (query.answers, AdviseAnswer, i - 1).found;
      const PlanFound *one = g_array_index (query.answers, AdviseAnswer, i).found;
      ck_assert_double_gt ((double)one->score.time_ns,
                           (1 + ADVISE_APART / 100) * (double)before->score.time_ns);
    }
}
END_TEST

/* The fastest of all answers and plans of the front with ep_overlap=on that fits, found plan by
 * plan with predictions; and how many plans it was tried on. */
static gint64
fastest_overlapped (const Asked *asked, const AdviseQuery *query, guint *out_tried)
{
  gint64 fastest = g_array_index (query->answers, AdviseAnswer, 0).found->score.time_ns;
  g_autoptr (GArray) front = plan_search_front (&query->result);
  *out_tried = 0;
  for (guint i = 0; i < query->answers->len + front->len && *out_tried < 32; i++)
    {
      const PlanFound *found
          = i < query->answers->len
                ? g_array_index (query->answers, AdviseAnswer, i).found
                : &g_array_index (query->result.found, PlanFound,
                                  g_array_index (front, guint, i - query->answers->len));
      gboolean is_legal = FALSE;
      for (guint delays = 0; delays < 2; delays++)
        {
          g_auto (AdvisePrediction) p = { 0 };
          AdviseInput input = asked->input;
          input.plan = found->plan;
          ck_assert (plan_set (&input.plan, "ep_overlap", "on", NULL));
          ck_assert (plan_set (&input.plan, "ep_delay_wgrad", delays ? "on" : "off", NULL));
          if (!advise_predict (&input, &p, NULL))
            continue;
          is_legal = TRUE;
          if (advise_choice_needed_bytes (&asked->choice, &p) <= asked->choice.memory_bytes)
            fastest = MIN (fastest, p.trace->step_ns);
        }
      *out_tried += is_legal;
    }
  return fastest;
}

/* What the search leaves out is tried on its answers and on its front, unless the question says
 * what ep_overlap shall be; of models without experts there is nothing to try. */
START_TEST (overlap_is_tried_on_what_was_found)
{
  static const struct
  {
    const char *model, *only;
    guint most; /* plans it may be tried on */
  } asks[] = { { "qwen3-30b-a3b,layers=12", "mbs=1,2 tp=1 cp=1 dp_outer=1", 32 },
               { "qwen3-30b-a3b,layers=12", "mbs=1 tp=1 cp=1 ep_overlap=off", 0 },
               { "qwen3-30b-a3b,layers=12", "mbs=1 tp=1 cp=1 recompute=full", 0 },
               { "llama3-8b", "mbs=1", 0 } };
  g_auto (GStrv) only = g_strsplit (asks[_i].only, " ", -1);
  const AdviseQuestion narrow = { .top = 3, .apart = ADVISE_APART, .front = 30, .only = only };
  g_auto (Asked) asked = { 0 };
  g_auto (AdviseQuery) query = { 0 };
  guint tried;
  asked_init (&asked, "dgx-h100:2");
  plan_model_free (asked.input.model);
  asked.input.model = plan_model_new (asks[_i].model, NULL);
  ck_assert (advise_choice_init (&asked.choice, &narrow, &asked.input, NULL));
  ck_assert (advise_query_ask (&asked.choice, 3, &query, NULL));
  const gint64 best_ns = g_array_index (query.answers, AdviseAnswer, 0).found->score.time_ns;
  ck_assert_uint_eq (query.trials[ADVISE_TRIAL_OVERLAP].n_tried, 0);
  advise_query_try (&asked.choice, &query);
  ck_assert_uint_le (query.trials[ADVISE_TRIAL_OVERLAP].n_tried, asks[_i].most);
  if (asks[_i].most == 0)
    {
      ck_assert_int_eq (query.trials[ADVISE_TRIAL_OVERLAP].faster.score.time_ns, 0);
      return;
    }
  const gint64 fastest_ns = fastest_overlapped (&asked, &query, &tried);
  ck_assert_uint_eq (query.trials[ADVISE_TRIAL_OVERLAP].n_tried, tried);
  ck_assert_int_lt (fastest_ns, best_ns);
  ck_assert_int_eq (query.trials[ADVISE_TRIAL_OVERLAP].faster.score.time_ns, fastest_ns);
  ck_assert_int_eq (query.trials[ADVISE_TRIAL_OVERLAP].faster.plan.value[PLAN_EP_OVERLAP],
                    PLAN_EP_OVERLAP_ON);
}
END_TEST

/* Graphs of modules are tried on plans of stack=megatron, which can have them: the fastest is that
 * of every plan and way by itself. */
START_TEST (graphs_are_tried_on_what_was_found)
{
  static const char *const ways[] = { "attn", "attn+moe_router" };
  g_auto (GStrv) only = g_strsplit ("mbs=1 tp=1 cp=1 dp_outer=1 pp=1 ep=8 ep_overlap=off", " ", -1);
  const AdviseQuestion narrow = { .top = 3, .apart = ADVISE_APART, .only = only };
  g_auto (Asked) asked = { 0 };
  g_auto (AdviseQuery) query = { 0 };
  gint64 fastest = G_MAXINT64;
  asked_init (&asked, "dgx-b200:1");
  plan_model_free (asked.input.model);
  asked.input.model = plan_model_new ("qwen3-30b-a3b,layers=12", NULL);
  ck_assert (plan_set (&asked.input.plan, "stack", _i ? "megatron-fsdp" : "megatron", NULL));
  ck_assert (plan_set (&asked.input.plan, "compute", "mxfp8", NULL));
  ck_assert (advise_choice_init (&asked.choice, &narrow, &asked.input, NULL));
  ck_assert (advise_query_ask (&asked.choice, 3, &query, NULL));
  advise_query_try (&asked.choice, &query);
  const AdviseTrial *trial = &query.trials[ADVISE_TRIAL_GRAPHS];
  ck_assert_int_eq (trial->n_tried > 0, _i == 0);
  for (guint i = 0; _i == 0 && i < query.answers->len; i++)
    for (guint way = 0; way < G_N_ELEMENTS (ways); way++)
      {
        g_auto (AdvisePrediction) p = { 0 };
        AdviseInput input = asked.input;
        input.plan = g_array_index (query.answers, AdviseAnswer, i).found->plan;
        ck_assert (plan_set (&input.plan, "graph_modules", ways[way], NULL));
        if (advise_predict (&input, &p, NULL)
            && advise_choice_needed_bytes (&asked.choice, &p) <= asked.choice.memory_bytes)
          fastest = MIN (fastest, p.trace->step_ns);
      }
  if (_i == 0)
    ck_assert_int_le (trial->faster.score.time_ns, fastest);
  ck_assert_int_eq (trial->faster.score.time_ns > 0, _i == 0);
}
END_TEST

START_TEST (says_why_nothing_fits)
{
  g_auto (Asked) asked = { 0 };
  g_auto (AdviseQuery) query = { 0 };
  g_autoptr (GError) error = NULL;
  asked_init (&asked, "rtx-4090:1");
  ck_assert (advise_query_ask (&asked.choice, 3, &query, NULL));
  ck_assert_uint_eq (query.answers->len, 0);
  ck_assert (!advise_query_refuse (&asked.choice, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("advise");
  TCase *tcase = tcase_create ("another program");
  tcase_add_test (tcase, answers_without_a_word);
  tcase_add_test (tcase, whoever_asks_may_stop);
  tcase_add_test (tcase, explains_all_memory);
  tcase_add_test (tcase, explains_all_compute);
  tcase_add_test (tcase, splits_compute_of_stages);
  tcase_add_test (tcase, answers_are_distinct_and_in_order);
  tcase_add_loop_test (tcase, overlap_is_tried_on_what_was_found, 0, 4);
  tcase_add_loop_test (tcase, graphs_are_tried_on_what_was_found, 0, 2);
  tcase_add_test (tcase, says_why_nothing_fits);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
