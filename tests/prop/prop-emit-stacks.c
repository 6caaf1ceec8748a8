/* SPDX-License-Identifier: Apache-2.0 */
/* What emit writes for a stack says all of the plan; otherwise emit refuses and names the fields
 * that it cannot express. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/emit/emit.h"
#include "tests/case.h"
#include "tests/prop/random.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const PlanEmitKind kinds[]
    = { PLAN_EMIT_BRIDGE, PLAN_EMIT_MEGATRON_FSDP, PLAN_EMIT_TORCHTITAN, PLAN_EMIT_FSDP2,
        PLAN_EMIT_FSDP1,  PLAN_EMIT_ACCELERATE,    PLAN_EMIT_NANOTRON,   PLAN_EMIT_SLURM };

/* Every reason starts with a field, with what of the model is in the way, or with the cluster. */
static void
assert_names_fields (guint seed, const char *message)
{
  const char *const reasons = strstr (message, "express this plan: ");
  ck_assert_msg (reasons != NULL, "seed %u: %s", seed, message);
  g_auto (GStrv) parts = g_strsplit (reasons + strlen ("express this plan: "), "; ", -1);
  for (char **part = parts; *part; part++)
    {
      PlanField field;
      g_autofree char *word = g_strndup (*part, strcspn (*part, "=:, "));
      ck_assert_msg (plan_field_parse (word, &field, NULL) || strcmp (word, "model") == 0
                         || strcmp (word, "cluster") == 0,
                     "seed %u: names no field: %s", seed, *part);
    }
}

/* The number behind the first `name`; 0 where there is none. */
static gint64
number_of (const char *text, const char *name)
{
  const char *const at = strstr (text, name);
  return at ? g_ascii_strtoll (at + strlen (name), NULL, 10) : 0;
}

/* The sizes that are written multiply to the sequences of a step, and to the number of devices. */
static void
assert_sizes (guint seed, PlanEmitKind kind, const char *text, const Plan *plan,
              const PlanCluster *cluster)
{
  const gint64 gbs = plan->value[PLAN_GBS], devices = plan_cluster_devices (cluster);
  const gint64 ranks = plan_data_parallel (plan, cluster);
  if (kind == PLAN_EMIT_NANOTRON)
    {
      ck_assert_int_eq (number_of (text, "\n  dp: ") * number_of (text, "\n  tp: ")
                            * number_of (text, "\n  pp: "),
                        devices);
      ck_assert_int_eq (number_of (text, "batch_accumulation_per_replica: ")
                            * number_of (text, "micro_batch_size: ") * number_of (text, "\n  dp: "),
                        gbs);
    }
  if (kind == PLAN_EMIT_TORCHTITAN)
    {
      const gint64 batch = number_of (text, "data_parallel_replicate_degree=")
                           * number_of (text, "data_parallel_shard_degree=");
      ck_assert_int_eq (batch, ranks);
      ck_assert_int_eq (batch * number_of (text, "tensor_parallel_degree=")
                            * number_of (text, "context_parallel_degree="),
                        devices);
      ck_assert_int_eq (number_of (text, "num_tokens_per_train_step="), gbs);
      ck_assert_int_eq (gbs % (batch * number_of (text, "num_tokens_per_microbatch_per_dp_rank=")),
                        0);
    }
  if (kind == PLAN_EMIT_FSDP2 || kind == PLAN_EMIT_FSDP1)
    ck_assert_int_eq (number_of (text, "MICRO_BATCH = ") * number_of (text, "MICRO_BATCHES = ")
                          * number_of (text, "DATA_PARALLEL = "),
                      gbs);
  if (kind == PLAN_EMIT_BRIDGE)
    {
      ck_assert_int_eq (number_of (text, "global_batch_size = "), gbs);
      ck_assert_int_eq (gbs % (number_of (text, "micro_batch_size = ") * ranks), 0);
      ck_assert_int_eq (number_of (text, "tensor_model_parallel_size = ")
                            * number_of (text, "context_parallel_size = ")
                            * number_of (text, "pipeline_model_parallel_size = ") * ranks,
                        devices);
    }
}

static const char *
value_of (guint seed, PlanField field)
{
  static const char *const numbers[] = { "1", "2", "4", "8" };
  const char *const *const names = plan_field_names (field);
  return names ? names[seed % g_strv_length ((char **)names)] : numbers[seed % 4];
}

/* Whether a model has only what every framework has, with sizes that all take: every second one. */
static gboolean
is_plain (guint seed)
{
  return seed % 2 == 0;
}

static PlanModel *
model_of (guint seed)
{
  static const char plain[]
      = "layers=4,hidden=256,ffn=512,heads=8,kv_heads=8,head_dim=32,vocab=512,max_seq=256";
  return is_plain (seed) ? plan_model_new (plain, NULL) : random_wide_model (seed);
}

/* Takes the value where that is a legal plan. */
static void
try_value (Plan *asked, PlanCase **of, const char *field, const char *word)
{
  Plan other = *asked;
  if (!plan_set (&other, field, word, NULL))
    return;
  PlanCase *changed = plan_case_new ((*of)->model, (*of)->cluster, &other, NULL, NULL);
  if (!changed)
    return;
  *asked = other;
  plan_case_free (*of);
  *of = changed;
}

/* For a plain model a plain plan of some stack with some fields changed, such as most people have;
 * for other models a plan with any value of any field. */
static PlanCase *
case_of (guint seed, const PlanModel *model, const PlanCluster *cluster)
{
  static const char *const stacks[]
      = { "fsdp2", "nanotron", "fsdp1", "megatron-fsdp", "fsdp2", "megatron", "native" };
  static const char *const sizes[] = { "tp", "cp", "dp_outer", "mbs" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  Plan asked;
  if (!is_plain (seed))
    return random_wide_case (seed, model, cluster);
  plan_init (&asked);
  ck_assert (plan_set (&asked, "stack", stacks[seed / 2 % G_N_ELEMENTS (stacks)], NULL));
  asked.value[PLAN_GBS] = plan_cluster_devices (cluster) * 16;
  PlanCase *of = plan_case_new (model, cluster, &asked, NULL, NULL);
  if (!of)
    {
      asked.value[PLAN_STRATEGY] = PLAN_STRATEGY_OPTIM;
      of = test_case_of (model, cluster, &asked);
    }
  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    try_value (&asked, &of, sizes[i], value_of (g_rand_int (rand), PLAN_TP));
  for (guint i = 0; i < seed / 2 % 6; i++)
    {
      const PlanField field = (PlanField)g_rand_int_range (rand, PLAN_STACK + 1, PLAN_N_FIELDS);
      try_value (&asked, &of, plan_field_name (field), value_of (g_rand_int (rand), field));
    }
  return of;
}

START_TEST (any_plan_is_written_or_refused_by_name)
{
  const guint seed = (guint)_i;
  g_autoptr (PlanModel) model = model_of (seed);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (seed);
  g_autoptr (PlanCase) of = case_of (seed, model, cluster);
  const PlanEmitSubject subject = { .of = of };
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    {
      g_autoptr (GError) error = NULL;
      g_autofree char *text = plan_emit (kinds[i], PLAN_EMIT_RUNTIME_OF_STACK, &subject, &error);
      ck_assert_msg ((text != NULL) != (error != NULL), "seed %u", seed);
      if (text)
        assert_sizes (seed, kinds[i], text, &of->plan, cluster);
      else
        assert_names_fields (seed, error->message);
    }
}
END_TEST

/* Whether a field has no effect in a plan, because of other fields. Two of its values may then be
 * written alike. */
static gboolean
is_idle (const Plan *plan, PlanField field)
{
  const gint64 *const value = plan->value;
  const gboolean is_full = value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL;
  return (field == PLAN_SP && value[PLAN_TP] == 1)
         || (field == PLAN_RECOMPUTE_MODULES && value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_SELECTIVE)
         || ((field == PLAN_RECOMPUTE_METHOD || field == PLAN_RECOMPUTE_LAYERS) && !is_full)
         || ((field == PLAN_EXP_AVG || field == PLAN_EXP_AVG_SQ)
             && value[PLAN_OPTIMIZER] == PLAN_OPTIMIZER_SGD);
}

/* What follows the two lines on the plan, whose hash tells all plans apart. */
static const char *
behind_hash (const char *text)
{
  const char *const line = strchr (strstr (text, ", plan "), '\n');
  return line + 1;
}

/* The natural kind's text of the plan with that field set to `word`; NULL where it is not another
 * plan, is not legal or is refused. */
static char *
write_other (const PlanCase *of, PlanField field, const char *word)
{
  Plan asked = of->plan;
  if (!plan_set (&asked, plan_field_name (field), word, NULL))
    return NULL;
  g_autoptr (PlanCase) other = plan_case_new (of->model, of->cluster, &asked, NULL, NULL);
  if (!other || other->plan.value[field] == of->plan.value[field] || is_idle (&other->plan, field))
    return NULL;
  const PlanEmitSubject subject = { .of = other };
  return plan_emit (plan_emit_kind_of (&other->plan, of->cluster), PLAN_EMIT_RUNTIME_OF_STACK,
                    &subject, NULL);
}

/* Two plans that differ in one field, if both are written, are written differently. */
START_TEST (no_field_is_dropped_in_silence)
{
  const guint seed = (guint)_i;
  g_autoptr (PlanModel) model = model_of (seed);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (seed);
  g_autoptr (PlanCase) of = case_of (seed, model, cluster);
  const PlanEmitKind kind = plan_emit_kind_of (&of->plan, cluster);
  g_autofree char *text
      = plan_emit (kind, PLAN_EMIT_RUNTIME_OF_STACK, &(PlanEmitSubject){ .of = of }, NULL);
  if (!text || kind == PLAN_EMIT_MPIRUN)
    return;
  for (PlanField field = PLAN_STACK + 1; field < PLAN_N_FIELDS; field++)
    for (guint i = 0; i < 8 && !is_idle (&of->plan, field); i++)
      {
        g_autofree char *other = write_other (of, field, value_of (i, field));
        ck_assert_msg (!other || strcmp (behind_hash (text), behind_hash (other)) != 0,
                       "seed %u: %s=%s changes nothing of\n%.900s", seed, plan_field_name (field),
                       value_of (i, field), text);
      }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-emit-stacks");
  TCase *tcase = tcase_create ("random plans");
  test_add_share (tcase, any_plan_is_written_or_refused_by_name, 160);
  test_add_share (tcase, no_field_is_dropped_in_silence, 160);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
