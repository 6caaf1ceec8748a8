/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a pipeline's step: where simulated stages begin, and what was measured below
 * them. */
#include "config.h"

#include "advise/adjustments.h"
#include "advise/predict.h"
#include "plots/plot.h"
#include "tests/case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const char *const plans[] = { "stack=native pp=2 gbs=8",
                                     "stack=native pp=4 gbs=16",
                                     "stack=native strategy=optim pp=2 vpp=2 gbs=8",
                                     "stack=native strategy=optim pp=4 vpp=2 gbs=16",
                                     "stack=megatron strategy=optim pp=4 vpp=2 tp=2 gbs=16",
                                     "stack=nanotron strategy=optim pp=4 gbs=16" };

typedef struct
{
  AdviseInput input;
  AdvisePrediction prediction;
  GArray *views; /* of PlanTraceView: the stages */
} Case;

static void
case_init (Case *self, const char *plan)
{
  g_autoptr (GError) error = NULL;
  *self = (Case){ .input = { .model = plan_model_new ("llama3-8b", NULL),
                             .cluster = plan_cluster_new ("dgx-h100:1", NULL),
                             .plan = test_plan (plan),
                             .db = ":memory:",
                             .adjustments = advise_adjustments_shipped () } };
  ck_assert_msg (advise_predict (&self->input, &self->prediction, &error)
                     && advise_prediction_expand (&self->prediction, &self->input, &error),
                 "%s: %s", plan, error ? error->message : "");
  self->views = g_array_copy (self->prediction.expanded);
}

static void
case_clear (Case *self)
{
  g_array_unref (self->views);
  advise_prediction_clear (&self->prediction);
  advise_input_clear (&self->input);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

static PlanTraceView *
view_at (const GArray *views, guint stage)
{
  return &g_array_index (views, PlanTraceView, stage);
}

/* Stored traces do not say how much later each stage begins: that is found from the times of their
 * trades. Stages of our own runtime begin together, as all wait for one norm and for no update. */
START_TEST (stages_are_put_where_they_were_simulated)
{
  g_auto (Case) c = { 0 };
  const GArray *simulated;
  gint64 least_ns = G_MAXINT64, spread_ns = 0;
  case_init (&c, plans[_i]);
  simulated = c.prediction.expanded;
  for (guint stage = 0; stage < simulated->len; stage++)
    {
      view_at (c.views, stage)->offset_ns = 0;
      least_ns = MIN (least_ns, view_at (simulated, stage)->offset_ns);
    }
  plot_pipeline_align (view_at (c.views, 0), c.views->len);
  for (guint stage = 0; stage < simulated->len; stage++)
    {
      const gint64 expected_ns = view_at (simulated, stage)->offset_ns - least_ns;
      ck_assert_int_eq (view_at (c.views, stage)->offset_ns, expected_ns);
      spread_ns = MAX (spread_ns, expected_ns);
    }
  if (strstr (plans[_i], "native"))
    ck_assert_int_eq (spread_ns, 0);
  else
    ck_assert_int_gt (spread_ns, 0);
}
END_TEST

/* Counts the rows of a block of the data; the last block ends with the data. */
static guint
count_rows (const char *data, const char *block)
{
  g_autofree char *head = g_strdup_printf ("# %s\n", block);
  const char *at = strstr (data, head);
  guint n = 0;
  if (!at)
    return 0;
  for (at += strlen (head); *at && *at != '\n' && *at != '#'; at = strchr (at, '\n') + 1)
    n++;
  return n;
}

static guint
count_boxes (const char *data)
{
  return count_rows (data, "forward") + count_rows (data, "backward")
         + count_rows (data, "exchange") + count_rows (data, "edge");
}

/* There are as many measured boxes as simulated ones where a step ran as simulated, in the lower
 * half of each row. */
START_TEST (what_was_measured_lies_below)
{
  g_auto (Case) c = { 0 };
  case_init (&c, plans[_i]);
  const PlanTraceView *views = view_at (c.views, 0);
  g_autofree char *alone = plot_pipeline_data (views, NULL, c.views->len);
  g_autofree char *both = plot_pipeline_data (views, views, c.views->len);
  ck_assert_uint_gt (count_boxes (alone), 4 * c.views->len);
  ck_assert_uint_eq (count_boxes (both), count_boxes (alone));
  ck_assert_uint_eq (count_rows (alone, "measured"), 0);
  ck_assert_uint_eq (count_rows (both, "measured"), count_boxes (both));
  g_autofree char *top = g_strdup_printf (" %u.36\n", c.views->len - 1);
  g_autofree char *low = g_strdup_printf (" %.2f %u.36\n", c.views->len - 1.36, c.views->len - 1);
  g_autofree char *high = g_strdup_printf (" %u.00 %u.36\n", c.views->len - 1, c.views->len - 1);
  ck_assert (strstr (alone, low) && !strstr (alone, high));
  ck_assert (strstr (both, high) && !strstr (both, low) && strstr (both, top));
  g_autofree char *below
      = g_strdup_printf (" %.2f %.2f ", c.views->len - 1.42, c.views->len - 1.06);
  ck_assert (strstr (both, below));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("plot-stages");
  TCase *tcase = tcase_create ("stages");
  tcase_add_loop_test (tcase, stages_are_put_where_they_were_simulated, 0, G_N_ELEMENTS (plans));
  tcase_add_loop_test (tcase, what_was_measured_lies_below, 0, G_N_ELEMENTS (plans));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
